"""What every test finds, and what it leaves behind: nothing."""

import logging
import signal
from collections.abc import Iterator

import pytest

# A shell lets what it starts in the background ignore Ctrl-C, and every child inherits that.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def log_as_found() -> Iterator[None]:
    """A verb of the command line shows the log from then on; the next test must not find it shown."""
    logger = logging.getLogger("xcbench")
    handlers, level = list(logger.handlers), logger.level
    yield
    logger.handlers[:] = handlers
    logger.setLevel(level)
