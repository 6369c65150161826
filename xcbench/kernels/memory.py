"""Memory: what a piece of work will need, said before it starts."""

from dataclasses import dataclass

import psutil

from xcbench.errors import XCBenchError


@dataclass(frozen=True)
class MemoryNeed:
    """What a prediction takes, in bytes; parameters that are loaded already count 0."""

    results: int
    """The `TopK` of all points."""
    work: int
    """The blocks under way, one a worker; does not grow with the number of points."""
    parameters: int = 0

    @property
    def total(self) -> int:
        return self.parameters + self.results + self.work

    def __str__(self) -> str:
        parts = {"parameters": self.parameters, "results": self.results, "blocks under way": self.work}
        return f"{_size(self.total)} ({', '.join(f'{_size(size)} {name}' for name, size in parts.items() if size)})"

    def require(self, what: str) -> None:
        """Stop before the work begins where it could only end in a crash."""
        free = psutil.virtual_memory().available
        if self.total > free:
            raise XCBenchError(f"{what} needs {self}, but only {_size(free)} of memory are free")


def _size(count: int) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.1f} MB"
