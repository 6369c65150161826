"""Which of the processes that `torchrun` started this one is, told from the environment: no torch is needed to know."""

import os


def rank() -> int:
    """The first process, the only one that writes and speaks, is 0."""
    return int(os.environ.get("RANK", 0)) if process_count() > 1 else 0


def process_count() -> int:
    return int(os.environ.get("WORLD_SIZE", 1))


def processes_here() -> int:
    """How many of them share this machine's cores."""
    return int(os.environ.get("LOCAL_WORLD_SIZE", 1))
