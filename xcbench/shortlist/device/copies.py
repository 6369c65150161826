"""What all shortlisters and predictors on a device have in common."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import torch


class Movable(Protocol):
    """A shortlister or predictor in main memory that has copies on devices."""

    def to(self, device: str | torch.device) -> Any:
        """Return a copy on a device; on the CPU that is the object itself."""

    def save(self, folder: Path) -> None:
        """Write the parameters to a new folder."""


Source = TypeVar("Source", bound=Movable)


class DeviceCopy(Generic[Source]):
    """A copy of a shortlister or predictor on a device.

    Parameters
    ----------
    source
        The object in main memory, which is what `save` writes.
    """

    def __init__(self, source: Source) -> None:
        self.source = source

    def save(self, folder: Path) -> None:
        self.source.save(folder)

    def to(self, device: str | torch.device) -> Any:
        """Return a copy on another device, or the object in main memory."""
        return self.source.to(device)
