"""Helpers for the checks of exercises in several lessons."""

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
from torch import Tensor, nn
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
    """Return (inputs, labels) batches of the given sizes: inputs (n, 6) from a normal distribution, labels
    (n,) from 0 to 2. The same seed gives the same batches.
    """
    generator = torch.Generator().manual_seed(seed)
    return [
        (torch.randn(n, 6, generator=generator), torch.randint(0, 3, (n,), generator=generator))
        for n in sizes
    ]


def small_model(*, norm: bool = True, dropout: float = 0.0) -> nn.Sequential:
    """Return a classifier, 6 features to 3 classes, with fixed weights; batch norm and dropout are
    optional.
    """
    torch.manual_seed(0)
    middle = [nn.BatchNorm1d(8)] if norm else []
    return nn.Sequential(nn.Linear(6, 8), *middle, nn.ReLU(), nn.Dropout(dropout), nn.Linear(8, 3))


def save_and_load(state: object) -> Any:
    """Save a state with ``torch.save`` in memory, and load it with ``weights_only=True``."""
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


class Calls(TorchFunctionMode):
    """A context manager that calls ``note(name, args, kwargs)`` before each call of a PyTorch function.

    ``name`` is the function's, such as ``"item"``; for reading a tensor's property it is the property's name.
    """

    def __init__(self, note: Callable[[str, Any, Any], object]) -> None:
        super().__init__()
        self.note = note

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Call ``note``, then the function; return its result."""
        name = getattr(func, "__name__", "")
        if name == "__get__":  # of a property, such as a tensor's device
            name = getattr(getattr(func, "__self__", None), "__name__", "")
        self.note(name, args, kwargs or {})
        return func(*args, **(kwargs or {}))


def norm(tensors: Sequence[Tensor]) -> float:
    """Return the Euclidean norm of tensors concatenated to one vector."""
    return math.sqrt(sum(float(t.double().square().sum()) for t in tensors))


def relative_error(got: Sequence[Tensor], right: Sequence[Tensor]) -> float:
    """Return the relative error, ``norm(got - right) / norm(right)``; if ``right`` is 0, the absolute one."""
    return norm([g - r for g, r in zip(got, right, strict=True)]) / (norm(right) or 1.0)


@contextmanager
def one_thread() -> Iterator[None]:
    """Set PyTorch's number of threads to 1 in the block, because a second one slows down tensors this small.

    The previous number is restored at the end.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def fast_gc() -> Iterator[None]:
    """Make ``gc.collect()`` ignore the existing objects in the block: an answer may call it often."""
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def tensors_in(value: object) -> list[Tensor]:
    """Return the tensors in a value: the value itself, or those in nested lists and tuples."""
    if isinstance(value, (list, tuple)):
        return [tensor for item in value for tensor in tensors_in(item)]
    return [value] if isinstance(value, Tensor) else []


def refuse_changed_inputs(answer: Callable[..., Any], judge: Judge, *positions: int) -> Callable[..., Any]:
    """Wrap an answer so that it is refused if it modifies tensors in the arguments at these positions.

    The refusal is the diagnosis ``"changed-input"``; other arguments may be modified. Tensors that are not on
    the CPU are not compared: a comparison would be counted as a read.
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


class LiveTensors:
    """Counts the bytes of the watched tensors that are still allocated, and their ``peak``."""

    def __init__(self) -> None:
        self.peak = 0
        self._seen: list[tuple[weakref.ref[Any], int]] = []

    def add(self, *tensors: Tensor) -> None:
        """Watch more tensors, and update ``peak``."""
        # Another tensor may share the memory: what counts is the storage.
        self._seen += [(weakref.ref(t.untyped_storage()), t.nbytes) for t in tensors]
        self.peak = max(self.peak, self.bytes)

    @property
    def bytes(self) -> int:
        """The bytes of the watched tensors that are still allocated."""
        return sum(nbytes for ref, nbytes in self._seen if ref() is not None)


def on_ranks(
    program: Callable[..., Any],
    answer: Callable[..., Any],
    ranks: int,
    judge: Judge,
    hang: str,
    mismatch: str = "",
) -> cluster.Run:
    """Run ``program(dist, answer)`` on each rank of a simulated cluster; return the run.

    An exception of the learner's answer is raised as `Raised`.

    Parameters
    ----------
    program
        Called on each rank with that rank's simulated ``torch.distributed`` and the answer.
    answer
        The learner's function.
    ranks
        The number of ranks.
    judge
        Refuses the answer.
    hang
        The diagnosis for a deadlock.
    mismatch
        The diagnosis for calls that do not match; by default that of a deadlock.
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
    """`ComparesToReference` for functions that may raise ``ValueError``: that is compared as
    ``"ValueError"``.
    """

    def _value(self, function: Callable[..., Any], case: Sequence[Any], read: Any = None) -> Any:
        try:
            return super()._value(function, case, read)
        except (ValueError, Raised) as error:
            if not isinstance(getattr(error, "error", error), ValueError):
                raise
            return "ValueError"


class Operations(TorchDispatchMode):
    """A context manager that calls ``note(name, result, args)`` after each operation, such as ``"mm"``."""

    def __init__(self, note: Callable[[str, Any, Any], object]) -> None:
        super().__init__()
        self.note = note

    def __torch_dispatch__(self, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the operation, then call ``note``; return the result."""
        result = op(*args, **(kwargs or {}))
        self.note(op.overloadpacket.__name__, result, args)
        return result
