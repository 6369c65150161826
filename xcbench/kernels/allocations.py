"""What work would take on a device, measured with tensors of torch's `meta` device: they have shapes but no content."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

META = torch.device("meta")


class MetaAllocations(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Adds up the bytes of meta tensors while it is entered: those that live, and the most that lived at a time.

    Memory is counted once, however many views there are of it, and until the last of them is gone.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.living = 0
        self.peak = 0
        self._storages: set[int] = set()

    def __torch_dispatch__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        if func is torch.ops.aten.clone.default and args[0].is_meta and args[0].is_sparse:
            result = _clone_with_entries(args[0])
        else:
            result = func(*args, **(kwargs or {}))

        for value in tree_leaves(result):
            if isinstance(value, Tensor) and value.is_meta:
                self._count(value)
        return result

    def _count(self, tensor: Tensor) -> None:
        if tensor.is_sparse:
            self._count(tensor._indices())
            self._count(tensor._values())
            return

        storage = tensor.untyped_storage()
        key = storage._cdata
        if key in self._storages:
            return
        size = storage.nbytes()
        self._storages.add(key)
        self.living += size
        self.peak = max(self.peak, self.living)
        weakref.finalize(storage, self._release, key, size).atexit = False

    def _release(self, key: int, size: int) -> None:
        self._storages.remove(key)
        self.living -= size


def _clone_with_entries(sparse: Tensor) -> Tensor:
    """Return a copy of a sparse meta tensor. torch's own copy of one has no entries."""
    return torch.sparse_coo_tensor(
        sparse._indices().clone(),
        sparse._values().clone(),
        sparse.shape,
        check_invariants=False,
        is_coalesced=sparse.is_coalesced(),
    )
