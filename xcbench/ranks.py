"""Which process this is among those that `torchrun` started. Read from the environment, so torch is not needed."""

import os


def rank() -> int:
    """Return the rank of this process. Rank 0 is the only one that writes files and prints."""
    if process_count() > 1:
        return _from_environment("RANK", 0)
    return 0


def process_count() -> int:
    """Return how many processes there are on all machines (torch's world size)."""
    return _from_environment("WORLD_SIZE", 1)


def local_process_count() -> int:
    """Return how many processes share the cores of this machine (torch's local world size)."""
    return _from_environment("LOCAL_WORLD_SIZE", 1)


def _from_environment(variable: str, default: int) -> int:
    return int(os.environ.get(variable, default))
