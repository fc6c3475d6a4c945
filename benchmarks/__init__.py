"""Our numbers beside those of other queues, measured in turn on one machine. Run by ``make bench``."""
