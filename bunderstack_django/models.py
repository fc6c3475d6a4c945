"""Gathers the models of the rooms, where Django looks for them."""

from .jobs.models import DedupeLock, Interval, Job, JobFailureReason, JobStatus, WorkerProcess

__all__ = ["DedupeLock", "Interval", "Job", "JobFailureReason", "JobStatus", "WorkerProcess"]
