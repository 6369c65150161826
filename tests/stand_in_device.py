"""A device that does not exist, in place of a GPU: its tensors hold CPU data and behave as a GPU's tensors would.

- They say that they are on another device, and cannot be combined with tensors of the CPU.
- Their memory is counted: what lives, and the most that lived at a time. Views of the same memory count once.
- Under `torch.autocast` they are multiplied in bfloat16.
- Every copy between the CPU and the device, and every operation for which the CPU would wait for a GPU, is recorded
  with the line of ours that caused it.

Use it as a context: `with StandInDevice() as device: ...`, and read `device.events`. The context makes
`tensor.to(DEVICE)` and `torch.zeros(3, device=DEVICE)` work; outside of it, only the tensors made in it do.
"""

from __future__ import annotations

import functools
import sys
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map
from torch.utils.backend_registration import _DummyBackendModule, _setup_privateuseone_for_python_backend


class Backend(_DummyBackendModule):
    """What torch asks of a device's module before it computes in lower precision there."""

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        return [torch.bfloat16]


_setup_privateuseone_for_python_backend("standin", backend_module=Backend())

DEVICE = torch.device("standin", 0)

ROOT = Path(__file__).parents[1]
OUR_CODE = tuple(f"{ROOT / folder}/" for folder in ("xcbench", "methods"))

aten = torch.ops.aten

WAITS = {
    aten._local_scalar_dense,  # item(), float(), bool(), int()
    aten.equal,
    aten.is_nonzero,
    aten.nonzero,
    aten.masked_select,
    aten._unique2,
    aten.unique_consecutive,
    aten.unique_dim,
    aten.bincount,
    aten._coalesce,
}
"""Operations whose result, or whose result's shape, the CPU has to wait for."""

IN_SHORT_NUMBERS = ("mm", "addmm", "bmm", "baddbmm", "mv", "addmv", "matmul", "linear")
"""Operations that autocast computes in bfloat16, as on a GPU."""

IN_FULL_NUMBERS = ("softplus", "softmax.int", "sum", "sum.dim_IntList", "exp", "log", "pow.Tensor_Scalar")
"""Operations that autocast computes in float32, as on a GPU. All others take the numbers that they are given."""

Kind = Literal["to device", "to host", "wait"]


class Event(NamedTuple):
    """Something that crosses the bus or makes the CPU wait."""

    kind: Kind
    operation: str
    line: str  # FILE:LINE of the innermost line of ours on the stack, but for the module that makes all copies
    shape: tuple[int, ...] = ()  # of the copied tensor
    size: int = 0  # its bytes


class Memory:
    """The device's memory: bytes that live, and the most that lived at a time since `start_of_peak`."""

    def __init__(self) -> None:
        self.living = 0
        self.peak = 0
        self._storages: set[int] = set()

    def start_of_peak(self) -> int:
        """Begin a new peak; returns the bytes that live."""
        self.peak = self.living
        return self.living

    def count(self, storage: torch.UntypedStorage) -> None:
        """Count memory from now on until it is freed, unless it is counted already."""
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


MEMORY = Memory()


class StandInTensor(torch.Tensor):
    """A tensor of the stand-in device. `data_on_cpu` holds its values."""

    data_on_cpu: Tensor

    @staticmethod
    def __new__(cls, data: Tensor) -> StandInTensor:
        if data.layout == torch.strided:
            form = {"strides": data.stride(), "storage_offset": data.storage_offset()}
        else:
            form = {"layout": data.layout}
        tensor: StandInTensor = torch.Tensor._make_wrapper_subclass(
            cls,
            data.shape,
            dtype=data.dtype,
            device=DEVICE,
            requires_grad=data.requires_grad,
            **form,
        )
        tensor.data_on_cpu = data
        if data.layout == torch.strided:
            MEMORY.count(data.untyped_storage())
        return tensor

    def __repr__(self, *, tensor_contents: object = None) -> str:
        return f"StandInTensor({self.data_on_cpu!r})"

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(
        cls,
        func: Any,
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        return _run(func, args, dict(kwargs or {}))


class StandInDevice(TorchDispatchMode):
    """The device while it is in use, and what has happened on it since."""

    _in_use: ClassVar[list[StandInDevice]] = []

    def __init__(self) -> None:
        super().__init__()
        self.events: list[Event] = []

    def __enter__(self) -> StandInDevice:
        # On one thread, so that the stack of a backward pass shows the line that started it.
        self._threads = torch.autograd.set_multithreading_enabled(False)
        self._threads.__enter__()
        StandInDevice._in_use.append(self)
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        StandInDevice._in_use.remove(self)
        self._threads.__exit__(*error)

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        return _run(func, args, dict(kwargs or {}))

    def count(self, kind: Kind) -> int:
        """Return the number of events of a kind."""
        return sum(event.kind == kind for event in self.events)

    @contextmanager
    def recording(self) -> Iterator[list[Event]]:
        """Collect the events of a block in a list of its own."""
        first = len(self.events)
        events: list[Event] = []
        try:
            yield events
        finally:
            events += self.events[first:]


def train_on_stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the training loop know a device by the name of `standin`."""
    from xcbench.train import loop

    resolve = loop.resolve_device

    @functools.wraps(resolve)
    def resolve_device(requested: str = "auto") -> torch.device:
        if requested == "standin":
            return DEVICE
        return resolve(requested)

    monkeypatch.setattr(loop, "resolve_device", resolve_device)


def on_stand_in(tensor: Tensor) -> Tensor:
    """Return a copy of a CPU tensor on the device. Nothing is recorded."""
    return StandInTensor(tensor.detach().clone())


def on_cpu(tensor: Tensor) -> Tensor:
    """Return the values of a tensor of either device. Nothing is recorded."""
    if isinstance(tensor, StandInTensor):
        return tensor.data_on_cpu
    return tensor.detach()


def _run(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run an operation where its tensors are, after checking and recording what a GPU would."""
    packet = func.overloadpacket
    tensors = [value for value in tree_flatten((args, kwargs))[0] if isinstance(value, Tensor)]
    here = [tensor for tensor in tensors if isinstance(tensor, StandInTensor)]
    if packet is aten._to_copy:
        return _copy(func, args, kwargs)
    if not here and not _is_stand_in(kwargs.get("device")):
        return func(*args, **kwargs)

    elsewhere = [tensor for tensor in tensors if not isinstance(tensor, StandInTensor)]
    if here:
        _check_devices(packet, args, elsewhere)
    if packet in WAITS or _has_mask(packet, args) or _has_unknown_length(packet, kwargs):
        _record("wait", packet)

    cpu_args, cpu_kwargs = tree_map(_values, (args, kwargs))
    if "device" in cpu_kwargs:
        cpu_kwargs["device"] = torch.device("cpu")
    result = func(*cpu_args, **cpu_kwargs)
    if packet is aten._local_scalar_dense:
        return result
    if packet is aten.copy_ and not isinstance(args[0], StandInTensor):
        return args[0]
    known = {id(tensor.data_on_cpu): tensor for tensor in here}
    return tree_map(functools.partial(_wrapped, known=known), result)


def _copy(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run `_to_copy`, the operation behind `to`, `cpu`, `float` and so on."""
    source = args[0]
    is_here = isinstance(source, StandInTensor)
    goes_here = is_here if kwargs.get("device") is None else _is_stand_in(kwargs["device"])
    if not is_here and not goes_here:
        return func(*args, **kwargs)
    if goes_here and not is_here:
        _record("to device", func.overloadpacket, source)
        return StandInTensor(func(source, **{**kwargs, "device": torch.device("cpu")}))
    if goes_here:
        return StandInTensor(func(_values(source), **{**kwargs, "device": torch.device("cpu")}))

    if torch.device(kwargs["device"]).type == "cpu":
        _record("to host", func.overloadpacket, source)
    return func(_values(source), **kwargs)


def _check_devices(packet: Any, args: tuple[Any, ...], elsewhere: Iterable[Tensor]) -> None:
    """Raise an error where a GPU would refuse tensors of the CPU, and record those that it would copy."""
    for tensor in elsewhere:
        if packet is aten.copy_:
            goes_here = isinstance(args[0], StandInTensor)
            _record("to device" if goes_here else "to host", packet, tensor)
        elif packet in (aten.index, aten.index_put, aten.index_put_) and _is_index(tensor, args):
            _record("to device", packet, tensor)
        elif tensor.dim() > 0:
            raise RuntimeError(f"{packet} was given tensors of two devices, at {_line_of_ours()}")


def _is_index(tensor: Tensor, args: tuple[Any, ...]) -> bool:
    """Whether a tensor is among the indices of an operation whose table is on the device."""
    return isinstance(args[0], StandInTensor) and any(tensor is index for index in args[1])


def _has_mask(packet: Any, args: tuple[Any, ...]) -> bool:
    """Whether the operation selects entries by a mask: then the CPU waits to know how many there are."""
    if packet not in (aten.index, aten.index_put, aten.index_put_):
        return False
    masks = [index for index in args[1] if index is not None and index.dtype == torch.bool]
    if packet is aten.index or (len(args) > 3 and args[3]):
        return bool(masks)
    is_fill = args[2].numel() == 1  # one value for all: torch fills without counting
    return bool(masks) and not is_fill


def _has_unknown_length(packet: Any, kwargs: Mapping[str, Any]) -> bool:
    return packet is aten.repeat_interleave and kwargs.get("output_size") is None


def _is_stand_in(device: Any) -> bool:
    return device is not None and torch.device(device).type == DEVICE.type


def _values(value: Any) -> Any:
    if isinstance(value, StandInTensor):
        return value.data_on_cpu
    return value


def _wrapped(value: Any, known: Mapping[int, Tensor]) -> Any:
    """Return a result as a tensor of the device; what an operation changed in place stays the tensor that it was."""
    if not isinstance(value, Tensor):
        return value
    if id(value) in known:
        return known[id(value)]
    return StandInTensor(value)


def _record(kind: Kind, packet: Any, tensor: Tensor | None = None) -> None:
    shape = () if tensor is None else tuple(tensor.shape)
    size = 0 if tensor is None else tensor.numel() * tensor.element_size()
    event = Event(kind, str(packet), _line_of_ours(), shape, size)
    for device in StandInDevice._in_use:
        device.events.append(event)


def _autocast_kernel(operation: Any, dtype: torch.dtype) -> Callable[..., Any]:
    """Return what an operation does under autocast: it converts its float tensors first."""

    def convert(value: Any) -> Any:
        if isinstance(value, Tensor) and value.is_floating_point() and value.dtype != torch.float64:
            return value.to(dtype)
        return value

    def kernel(*args: Any, **kwargs: Any) -> Any:
        with torch.autocast(DEVICE.type, enabled=False):
            args, kwargs = tree_map(convert, (args, kwargs))
            return operation(*args, **kwargs)

    return kernel


def _register_autocast() -> list[torch.library.Library]:
    """Let `torch.autocast` work on the device. The registrations last as long as what is returned."""
    others = torch.library.Library("_", "IMPL")
    others.fallback(torch.library.fallthrough_kernel, "AutocastPrivateUse1")
    library = torch.library.Library("aten", "IMPL")
    for names, dtype in ((IN_SHORT_NUMBERS, torch.bfloat16), (IN_FULL_NUMBERS, torch.float32)):
        for name in names:
            packet, _, overload = name.partition(".")
            operation = getattr(getattr(aten, packet), overload or "default")
            library.impl(name, _autocast_kernel(operation, dtype), "AutocastPrivateUse1")
    return [others, library]


_autocast = _register_autocast()


@functools.cache
def _resolved(filename: str) -> str:
    return str(Path(filename).resolve())


def _line_of_ours() -> str:
    frame = sys._getframe()
    while frame is not None:
        name = _resolved(frame.f_code.co_filename)
        if name.startswith(OUR_CODE) and not name.endswith("/nn/device_arrays.py"):
            return f"{Path(name).relative_to(ROOT)}:{frame.f_lineno}"
        frame = frame.f_back  # type: ignore[assignment]
    return "not ours"
