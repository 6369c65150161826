"""What every test leaves behind: nothing."""

import logging
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def log_as_found() -> Iterator[None]:
    """A verb of the command line shows the log from then on; the next test must not find it shown."""
    logger = logging.getLogger("xcbench")
    handlers, level = list(logger.handlers), logger.level
    yield
    logger.handlers[:] = handlers
    logger.setLevel(level)
