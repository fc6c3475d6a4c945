"""The admin pages of jobs and of the worker processes that run them."""

from .jobs import JobAdmin
from .workers import WorkerProcessAdmin

__all__ = ["JobAdmin", "WorkerProcessAdmin"]
