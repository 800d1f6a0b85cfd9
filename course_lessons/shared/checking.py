"""Shared by the checks of several lessons."""

from __future__ import annotations

import functools
import gc
import io
import math
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from course_language import _
from course_utils.exercises import Judge
from course_utils.exercises.forms import ComparesToReference
from course_utils.exercises.judge import NotTried, NotYet, Raised
from course_utils.exercises.values import same
from simgpu import cluster

Batches = list[tuple[Tensor, Tensor]]


def made_batches(sizes: Sequence[int], seed: int = 1) -> Batches:
    """Return batches of the given sizes; the labels are random, so no batch is like another."""
    generator = torch.Generator().manual_seed(seed)
    return [
        (torch.randn(n, 6, generator=generator), torch.randint(0, 3, (n,), generator=generator))
        for n in sizes
    ]


def through_file(state: object) -> Any:
    """Return what comes back of a state that was saved, and loaded with ``weights_only=True``."""
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


class Calls(TorchFunctionMode):
    """Within it, ``note(name, args, kwargs)`` is called before each call of a PyTorch function."""

    def __init__(self, note: Callable[[str, Any, Any], object]) -> None:
        super().__init__()
        self.note = note

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Note the call, then make it."""
        name = getattr(func, "__name__", "")
        if name == "__get__":  # of a property, such as a tensor's device
            name = getattr(getattr(func, "__self__", None), "__name__", "")
        self.note(name, args, kwargs or {})
        return func(*args, **(kwargs or {}))


def norm(tensors: Sequence[Tensor]) -> float:
    """Return the length of tensors, taken as one vector."""
    return math.sqrt(sum(float(t.double().square().sum()) for t in tensors))


def how_far_off(got: Sequence[Tensor], right: Sequence[Tensor]) -> float:
    """Return how far tensors are from the right ones, as a share of their size."""
    return norm([g - r for g, r in zip(got, right, strict=True)]) / (norm(right) or 1.0)


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute on one thread: tensors this small do not pay for waking a second."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def quick_collection() -> Iterator[None]:
    """Let ``gc.collect()`` skip all existing objects: an answer may call it often."""
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def tensors_in(value: object) -> list[Tensor]:
    """Return the tensors in lists and tuples, nested ones too."""
    if isinstance(value, (list, tuple)):
        return [tensor for item in value for tensor in tensors_in(item)]
    return [value] if isinstance(value, Tensor) else []


def keeps(answer: Callable[..., Any], judge: Judge, *positions: int) -> Callable[..., Any]:
    """Return the answer, refused as ``"changed-input"`` where it changes tensors in these arguments.

    For an answer that may change others. Tensors on a device are left out: a comparison would count as reads.
    """

    @functools.wraps(answer)
    def call(*arguments: Any) -> Any:
        given = tensors_in([arguments[position] for position in positions])
        given = [t for t in given if t.device.type == "cpu"]
        before = [t.detach().clone() for t in given]
        got = answer(*arguments)
        for tensor, old in zip(given, before, strict=True):
            if not same(tensor.detach(), old):
                judge.no("changed-input", seen=tensor, expected=old)
        return got

    return call


class Alive:
    """Watches tensors: how many bytes of them are still allocated, and the peak."""

    def __init__(self) -> None:
        self.peak = 0
        self._seen: list[tuple[weakref.ref[Any], int]] = []

    def add(self, *tensors: Tensor) -> None:
        """Watch tensors from now on."""
        # Another tensor may share the memory: what counts is the storage.
        self._seen += [(weakref.ref(t.untyped_storage()), t.nbytes) for t in tensors]
        self.peak = max(self.peak, self.bytes)

    @property
    def bytes(self) -> int:
        """The bytes that are allocated now."""
        return sum(nbytes for ref, nbytes in self._seen if ref() is not None)


def on_ranks(
    program: Callable[..., Any],
    answer: Callable[..., Any],
    ranks: int,
    judge: Judge,
    hang: str,
    mismatch: str = "",
) -> cluster.Run:
    """Run ``program(dist, answer)`` on each rank.

    A deadlock is refused as ``hang``; calls that do not match as ``mismatch``, or else as ``hang``.
    """

    def call(*arguments: Any) -> Any:
        try:
            return answer(*arguments)
        except Raised as raised:  # the cluster tells its own errors from the learner's
            raise raised.error from None

    try:
        with one_thread():
            return cluster.run(lambda dist: program(dist, call), ranks=ranks)
    except cluster.Deadlock as error:
        judge.no(hang, seen=str(error), expected=_("no rank that waits for ever"))
    except cluster.Mismatch as error:
        judge.no(mismatch or hang, seen=str(error), expected=_("the same calls on every rank"))
    except (NotTried, NotYet):
        raise
    except Exception as error:  # noqa: BLE001  (it is the learner's)
        raise Raised(error) from None


class OrValueError(ComparesToReference):
    """A check over cases in which raising ``ValueError`` is a result too: it counts as ``"ValueError"``."""

    def _value(self, function: Callable[..., Any], case: Sequence[Any], read: Any = None) -> Any:
        try:
            return super()._value(function, case, read)
        except (ValueError, Raised) as error:
            if not isinstance(getattr(error, "error", error), ValueError):
                raise
            return "ValueError"


class Operations(TorchDispatchMode):
    """Calls ``note(name, result, args)`` after each operation on tensors within it; a name is ``"mm"``."""

    def __init__(self, note: Callable[[str, Any, Any], object]) -> None:
        super().__init__()
        self.note = note

    def __torch_dispatch__(self, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the operation, then tell of it."""
        result = op(*args, **(kwargs or {}))
        self.note(op.overloadpacket.__name__, result, args)
        return result
