"""Gathers the admin pages of the rooms, where Django looks for them."""

from .jobs.admin import JobAdmin, WorkerProcessAdmin

__all__ = ["JobAdmin", "WorkerProcessAdmin"]
