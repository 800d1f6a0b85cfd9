"""Exercises of lesson 06, memory.

What a check must know of memory it finds in one of three ways: by arithmetic, by asking which tensors are
still alive, or, for the challenge, on a simulated device of its own. The learner's devices and tensors
are left alone.
"""

from __future__ import annotations

import functools
import gc
import math
import warnings
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from .. import memory, simgpu
from .core import Exercise, Judge, _Raised

# What several checks use -------------------------------------------------------------------------


class _Alive:
    """Knows the memory of which tensors is still held, and the most bytes that ever was."""

    def __init__(self) -> None:
        self.peak = 0
        self._seen: list[tuple[weakref.ref[Any], int]] = []

    def add(self, *tensors: Tensor) -> None:
        """Watch tensors from now on."""
        # A tensor's memory may go on in another tensor: what counts is the storage.
        self._seen += [(weakref.ref(t.untyped_storage()), t.nbytes) for t in tensors]
        self.peak = max(self.peak, self.bytes)

    @property
    def bytes(self) -> int:
        """The bytes of those that are alive now."""
        return sum(nbytes for ref, nbytes in self._seen if ref() is not None)


class _Block(nn.Module):
    """A residual block: norm, up, GELU, dropout, down. It shows what it makes to ``watch``.

    Parameters
    ----------
    width, inner
        Features outside and inside.
    dropout
        The share of the inner features that is dropped.
    """

    def __init__(self, width: int, inner: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, inner)
        self.down = nn.Linear(inner, width)
        self.dropout = dropout
        self.watch: _Alive | None = None

    def forward(self, x: Tensor) -> Tensor:
        """Return ``x`` and what the block adds to it."""
        normed = self.norm(x)
        raised = self.up(normed)
        bent = F.gelu(raised)
        kept = F.dropout(bent, self.dropout, self.training) if self.dropout else bent
        if self.watch is not None:
            self.watch.add(normed, raised, bent, kept)
        return x + self.down(kept)


def _norm(tensors: Sequence[Tensor]) -> float:
    return math.sqrt(sum(float(t.double().square().sum()) for t in tensors))


def _off(got: Sequence[Tensor], right: Sequence[Tensor]) -> float:
    """Return how far tensors are from the right ones, as a share of their size."""
    return _norm([g - r for g, r in zip(got, right, strict=True)]) / (_norm(right) or 1.0)


@contextmanager
def _one_thread() -> Iterator[None]:
    """Compute on one thread for a while: tensors this small do not pay for waking a second."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _raw(answer: Callable[..., Any]) -> Callable[..., Any]:
    """Return the learner's own function, whose errors a check wants to see as they are."""
    return answer.__wrapped__


# state_bytes -------------------------------------------------------------------------------------


def state_bytes(model, states_per_parameter):
    def size(tensors):
        return sum(t.numel() * t.element_size() for t in tensors)

    trained = size(p for p in model.parameters() if p.requires_grad)
    return {
        "parameters": size(model.parameters()),
        "gradients": trained,
        "optimizer": states_per_parameter * trained,
        "buffers": size(model.buffers()),
    }


def _models() -> Iterator[tuple[str, nn.Module]]:
    yield "a linear layer", nn.Linear(7, 3)
    yield (
        "a model with BatchNorm",
        nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4), nn.Linear(4, 2)),
    )
    yield (
        "a model in two dtypes",
        nn.Sequential(nn.Linear(6, 6).half(), nn.Linear(6, 6), nn.LayerNorm(6)),
    )
    frozen = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 3).double())
    frozen[0].requires_grad_(False)
    yield "a model with a frozen layer", frozen
    tied = nn.ModuleDict({"words": nn.Embedding(11, 4), "head": nn.Linear(4, 11, bias=False)})
    tied["head"].weight = tied["words"].weight
    yield "a model with tied weights", tied
    masked = nn.Linear(3, 3)
    masked.register_buffer("mask", torch.ones(9, dtype=torch.bool), persistent=False)
    yield "a model with a buffer that is not saved", masked


def _check_state_bytes(answer: Callable[..., Any], judge: Judge) -> None:
    for name, model in _models():
        for states in (2, 1, 0):
            right = state_bytes(model, states)
            got = judge.is_a(answer(model, states), dict, "a dict")
            if set(got) != set(right):
                judge.no("other-keys", seen=list(got), expected=list(right))
            found = {key: judge.number(got[key]) for key in right}
            if found == right:
                continue
            like = [twin for twin, f in _STATE_TWINS if f(model, states) == found]
            off = [key for key in right if found[key] != right[key]]
            judge.no(
                like[0] if like else "wrong-value",
                seen=f"{off[0]} {found[off[0]]:,.0f} bytes for {name}, {states} states",
                expected=f"{right[off[0]]:,} bytes",
            )


def _state_of(
    size: Callable[[Tensor], int] = lambda t: t.nbytes,
    parameters: Callable[[nn.Module], list[Tensor]] = lambda m: list(m.parameters()),
    trained: Callable[[Tensor], bool] = lambda p: p.requires_grad,
    buffers: Callable[[nn.Module], list[Tensor]] = lambda m: list(m.buffers()),
) -> Callable[..., Any]:
    def state_bytes(model, states_per_parameter):
        learning = sum(size(p) for p in parameters(model) if trained(p))
        return {
            "parameters": sum(size(p) for p in parameters(model)),
            "gradients": learning,
            "optimizer": states_per_parameter * learning,
            "buffers": sum(size(b) for b in buffers(model)),
        }

    return state_bytes


def _state_without_dtype(model, states_per_parameter):
    return _state_of(size=lambda t: 4 * t.numel())(model, states_per_parameter)


def _state_in_elements(model, states_per_parameter):
    return _state_of(size=lambda t: t.numel())(model, states_per_parameter)


def _state_of_frozen(model, states_per_parameter):
    return _state_of(trained=lambda p: True)(model, states_per_parameter)


def _state_optimizer_of_frozen(model, states_per_parameter):
    right = state_bytes(model, states_per_parameter)
    return {**right, "optimizer": states_per_parameter * right["parameters"]}


def _state_tied_twice(model, states_per_parameter):
    def every(m):
        return [p for _, p in m.named_parameters(remove_duplicate=False)]

    return _state_of(parameters=every)(model, states_per_parameter)


def _state_saved_buffers(model, states_per_parameter):
    def saved(m):
        parameters = dict(m.named_parameters(remove_duplicate=False))
        return [value for name, value in m.state_dict().items() if name not in parameters]

    return _state_of(buffers=saved)(model, states_per_parameter)


def _state_existing_gradients(model, states_per_parameter):
    existing = sum(p.grad.nbytes for p in model.parameters() if p.grad is not None)
    return {**state_bytes(model, states_per_parameter), "gradients": existing}


def _state_buffers_learn(model, states_per_parameter):
    def all_of_it(m):
        return [*m.parameters(), *m.buffers()]

    right = state_bytes(model, states_per_parameter)
    everything = _state_of(parameters=all_of_it, trained=lambda t: t.is_floating_point())
    return {**everything(model, states_per_parameter), "buffers": right["buffers"]}


_STATE_TWINS = (
    ("elements", _state_in_elements),
    ("always-four", _state_without_dtype),
    ("frozen", _state_of_frozen),
    ("frozen", _state_optimizer_of_frozen),
    ("tied-twice", _state_tied_twice),
    ("saved-buffers", _state_saved_buffers),
    ("buffers-learn", _state_buffers_learn),
    ("no-gradient-yet", _state_existing_gradients),
)


# average_loss ------------------------------------------------------------------------------------


def average_loss(model, batches, loss_fn):
    total = count = 0
    with torch.inference_mode():
        for x, y in batches:
            total += loss_fn(model(x), y).item() * len(x)
            count += len(x)
    return total / count


class _Evaluation:
    """Batches made one at a time, a model and a loss; notes what is alive when the next is asked for.

    Parameters
    ----------
    sizes
        The rows of each batch.
    """

    def __init__(self, sizes: Sequence[int]) -> None:
        generator = torch.Generator().manual_seed(len(sizes))
        self.model = nn.Sequential(nn.Linear(6, 40), nn.Tanh(), nn.Linear(40, 3)).eval()
        self.model.register_forward_hook(lambda _, args, out: self._note(out))
        self.given, self.outputs, self.graph = _Alive(), _Alive(), _Alive()
        self.held: list[tuple[int, int, int]] = []
        self.graphs = 0
        self._pairs = [
            (torch.randn(n, 6, generator=generator), torch.randint(3, (n,), generator=generator))
            for n in sizes
        ]

    def _note(self, output: Tensor) -> None:
        self.outputs.add(output)
        self.graphs += output.requires_grad

    def batches(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Give out copies of the batches, one at a time."""
        for x, y in self._pairs:
            self.held.append((self.given.bytes, self.outputs.bytes, self.graph.bytes))
            pair = x.clone(), y.clone()
            self.given.add(*pair)
            yield pair
            del pair

    def loss_fn(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the mean cross-entropy of a batch."""
        return F.cross_entropy(outputs, targets)

    def run(self, answer: Callable[..., Any]) -> Any:
        """Call an answer, and watch what autograd saves for it."""

        def pack(tensor: Tensor) -> Tensor:
            kept = tensor.detach().clone()
            self.graph.add(kept)
            return kept

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda kept: kept):
            return answer(self.model, self.batches(), self.loss_fn)

    def growth(self, which: int) -> tuple[int, int]:
        """Return what was alive when the third batch was asked for, and when the last was."""
        return self.held[2][which], self.held[-1][which]

    def expected(self) -> float:
        """Return the mean over all rows."""
        x, y = (torch.cat(part) for part in zip(*self._pairs, strict=True))
        with torch.no_grad():
            return F.cross_entropy(self.model(x), y).item()


@_one_thread()
def _check_average_loss(answer: Callable[..., Any], judge: Judge) -> None:
    for sizes in ((8, 8, 8, 8, 8, 8, 3), (5, 9, 2, 7, 4)):
        run = _Evaluation(sizes)
        got = run.run(answer)
        if len(run.held) < len(sizes):
            judge.no("not-all", seen=f"{len(run.held)} batches", expected=f"all {len(sizes)}")
        whats = ("batches", "outputs", "saved activations")
        for which, diagnosis in ((2, "leak"), (0, "keeps-batches"), (1, "keeps-outputs")):
            early, late = run.growth(which)
            if late > 1.5 * early + 100:
                judge.no(
                    diagnosis,
                    seen=f"{whats[which]} in memory: {early:,} bytes at batch 3, {late:,} at the last",
                    expected="no more at the last than before",
                )
        if run.graphs:
            judge.no("graph", seen="outputs that require a gradient", expected="no graph")
        if isinstance(got, Tensor):
            judge.no("tensor", seen="a tensor", expected="a Python number")
        if not math.isclose(judge.number(got), run.expected(), rel_tol=1e-4):
            like = [
                twin
                for twin, f in _LOSS_TWINS.items()
                if math.isclose(got, f(run.model, run.batches(), run.loss_fn), rel_tol=1e-4)
            ]
            judge.no(like[0] if like else "wrong-value", seen=got, expected=run.expected())


def _average_with_graph(model, batches, loss_fn):
    total = count = 0
    for x, y in batches:
        total += loss_fn(model(x), y) * len(x)
        count += len(x)
    return (total / count).item()


def _average_with_short_graph(model, batches, loss_fn):
    total = count = 0
    for x, y in batches:
        total += loss_fn(model(x), y).item() * len(x)
        count += len(x)
    return total / count


def _average_of_list(model, batches, loss_fn):
    batches = list(batches)
    with torch.no_grad():
        total = sum(loss_fn(model(x), y).item() * len(x) for x, y in batches)
    return total / sum(len(x) for x, _ in batches)


def _average_of_outputs(model, batches, loss_fn):
    outputs, targets = [], []
    with torch.no_grad():
        for x, y in batches:
            outputs.append(model(x))
            targets.append(y.clone())
        return loss_fn(torch.cat(outputs), torch.cat(targets)).item()


def _average_of_means(model, batches, loss_fn):
    with torch.no_grad():
        losses = [loss_fn(model(x), y).item() for x, y in batches]
    return sum(losses) / len(losses)


def _average_unweighted(model, batches, loss_fn):
    total = count = 0
    with torch.no_grad():
        for x, y in batches:
            total += loss_fn(model(x), y).item()
            count += len(x)
    return total / count


def _average_by_batches(model, batches, loss_fn):
    total = count = 0
    with torch.no_grad():
        for x, y in batches:
            total += loss_fn(model(x), y).item() * len(x)
            count += 1
    return total / count


def _average_last_only(model, batches, loss_fn):
    with torch.no_grad():
        for x, y in batches:
            loss = loss_fn(model(x), y).item()
    return loss


def _average_used_up(model, batches, loss_fn):
    count = sum(len(x) for x, _ in batches)
    with torch.no_grad():
        return sum(loss_fn(model(x), y).item() * len(x) for x, y in batches) / count


_LOSS_TWINS = {
    "mean-of-means": _average_of_means,
    "unweighted": _average_unweighted,
    "by-batches": _average_by_batches,
    "last-only": _average_last_only,
    "used-up": _average_used_up,
}


def _average_as_tensor(model, batches, loss_fn):
    total = count = 0
    with torch.no_grad():
        for x, y in batches:
            total += loss_fn(model(x), y) * len(x)
            count += len(x)
    return total / count


# diagnose ----------------------------------------------------------------------------------------


def diagnose(message):
    found = memory.figures(message)
    within_reach = found["free"] + found["unallocated"]
    others = found["capacity"] - found["free"] - found["process"]
    if found["requested"] <= within_reach:
        return "fragmented"
    if found["requested"] <= within_reach + others:
        return "someone else"
    return "too large"


def _sentence(
    requested: float,
    capacity: float,
    free: float,
    allocated: float,
    unallocated: float,
    context: float = 300.0,
    others: Sequence[float] = (),
    container: bool = False,
    pools: float = 0.0,
) -> str:
    """Return CUDA's sentence; every figure is in MiB. What is left of the capacity is the driver's.

    In a container the program's own process is listed by a number, like the others. ``pools`` is what CUDA
    graphs hold.
    """

    def size(mib: float) -> str:
        return _size(round(mib * 2**20))

    own = size(allocated + unallocated + context)
    listed = [size(n) for n in others] + [own] * container
    processes = "".join(f"Process {4100 + n} has {m} memory in use. " for n, m in enumerate(listed))
    if not container:
        processes += f"Including non-PyTorch memory, this process has {own} memory in use. "
    graphs = f"with {size(pools)} allocated in private pools (e.g., CUDA Graphs), " if pools else ""
    return (
        f"CUDA out of memory. Tried to allocate {size(requested)}. GPU 0 has a total capacity of "
        f"{size(capacity)} of which {size(free)} is free. {processes}Of the allocated memory "
        f"{size(allocated)} is allocated by PyTorch, {graphs}and {size(unallocated)} is reserved by PyTorch but "
        "unallocated. If reserved but unallocated memory is large try setting "
        "PYTORCH_ALLOC_CONF=expandable_segments:True to avoid fragmentation.  See documentation for "
        "Memory Management  (https://pytorch.org/docs/stable/notes/cuda.html#environment-variables)"
    )


def _size(nbytes: int) -> str:
    """Return a number of bytes as PyTorch's messages write it."""
    from ..simgpu.allocator import format_size

    return format_size(nbytes)


_MESSAGES = (
    ("too large", _sentence(20480, 15360, 12288, 2560, 212)),
    ("too large", _sentence(512, 15360, 100, 14800, 160)),
    ("fragmented", _sentence(2048, 15360, 1024, 9728, 4308)),
    ("fragmented", _sentence(512, 15360, 256, 14548, 256)),
    ("fragmented", _sentence(300, 15360, 10, 14650, 400)),
    ("fragmented", _sentence(0.5, 15360, 0.25, 15058.5, 1.25)),
    ("someone else", _sentence(4096, 15360, 512, 1024, 100, others=[13424])),
    ("someone else", _sentence(1024, 24576, 256, 11908, 112, others=[6000, 6000])),
    ("someone else", _sentence(2048, 8192, 256, 5844, 0, others=[1792])),
    ("fragmented", _sentence(1024, 15360, 512, 8192, 2260, others=[4096])),
    ("too large", _sentence(8192, 15360, 512, 10240, 212, others=[4096])),
    ("too large", _sentence(600, 15360, 100, 14650, 110, others=[200])),
    ("too large", _sentence(200, 300, 20, 270, 10, context=0)),
    ("fragmented", _sentence(40, 300, 20, 240, 40, context=0)),
    ("too large", _sentence(20, 15104, 15.06, 14817, 2, context=270, container=True)),
    ("someone else", _sentence(4096, 15360, 512, 1024, 100, others=[13424], container=True)),
    ("fragmented", _sentence(2048, 15360, 1024, 9728, 4308, pools=1.38)),
)


def _check_diagnose(answer: Callable[..., Any], judge: Judge) -> None:
    known = ("too large", "fragmented", "someone else")
    for right, message in _MESSAGES:
        got = judge.is_a(answer(message), str, "one of the three texts")
        if got not in known:
            judge.no("other-word", seen=got, expected=" / ".join(known))
        if got == right:
            continue
        f = {name: _size(n) for name, n in memory.figures(message).items()}
        judge.no(
            _DIAGNOSE[right, got],
            seen=f"{got!r}, where {f['requested']} were asked for, of {f['capacity']} are free "
            f"{f['free']}, this process has {f['process']}, and of them {f['unallocated']} unallocated",
            expected=repr(right),
        )


_DIAGNOSE = {
    ("too large", "fragmented"): "not-enough",
    ("too large", "someone else"): "would-not-help",
    ("fragmented", "too large"): "enough-in-pieces",
    ("fragmented", "someone else"): "not-their-fault",
    ("someone else", "too large"): "others-missed",
    ("someone else", "fragmented"): "not-enough",
}


def _diagnose_by_advice(message):
    return "fragmented" if "expandable_segments" in message else "too large"


def _diagnose_by_free(message):
    found = memory.figures(message)
    others = found["capacity"] - found["free"] - found["process"]
    if found["requested"] <= found["free"]:
        return "fragmented"
    return "someone else" if found["requested"] <= found["free"] + others else "too large"


def _diagnose_without_others(message):
    found = memory.figures(message)
    fits = found["requested"] <= found["free"] + found["unallocated"]
    return "fragmented" if fits else "too large"


def _diagnose_any_others(message):
    return "someone else" if "Process" in message else diagnose(message)


def _diagnose_others_always(message):
    right = diagnose(message)
    blame = right == "too large" and "Process" in message
    return "someone else" if blame else right


# largest_batch -----------------------------------------------------------------------------------


def largest_batch(works, start=1, limit=None):
    def fits(batch):
        try:
            works(batch)
            fine = True
        except torch.OutOfMemoryError:
            fine = False
        gc.collect()
        return fine

    good, bad = 0, math.inf if limit is None else limit + 1
    batch = start
    while batch < bad and fits(batch):
        good, batch = batch, 2 * batch
    bad = min(bad, batch)
    while bad - good > 1:
        middle = (good + bad) // 2
        if fits(middle):
            good = middle
        else:
            bad = middle
    return good


class _Card:
    """A make-believe card on which a batch of ``most`` fits; notes what is tried and what is left over.

    Like a real training, a try holds memory in its frame, and in a reference cycle.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.tried: list[int] = []
        self.left_over = 0
        self._held: list[weakref.ref[Any]] = []

    def works(self, batch: int) -> None:
        """Train with a batch, or run out of memory."""
        self.tried.append(batch)
        self.left_over += any(ref() is not None for ref in self._held)
        if len(self.tried) > 200:
            raise _Enough
        activations, cycle = _Activations(), _Activations()
        cycle.itself = cycle
        self._held = [weakref.ref(activations), weakref.ref(cycle)]
        if not isinstance(batch, int) or batch < 1:
            raise ValueError(f"works({batch!r}): a batch is a whole number from 1 on")
        if batch > self.most:
            raise torch.OutOfMemoryError("CUDA out of memory. (a make-believe card)")


class _Activations:
    itself: Any = None


class _Enough(Exception):
    """The search has tried too often."""


@contextmanager
def _quick_collection() -> Iterator[None]:
    """Let ``gc.collect()`` look only at what is made from now on, for a while."""
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def _check_largest_batch(answer: Callable[..., Any], judge: Judge) -> None:
    with _quick_collection():
        for most, start, limit in _SEARCHES:
            _judge_search(answer, _Card(most), start, limit, judge)
        _judge_other_errors(answer, judge)
        card = _Card(11)
        got = answer(card.works)
    if got != 11 or card.tried[0] != 1:
        judge.no(
            "wrong-batch",
            seen=f"{got!r} after {card.tried}, with start and limit left out",
            expected="11, and 1 tried first",
        )


_SEARCHES = (
    (37, 1, None),
    (1000, 1, None),
    (64, 1, None),
    (63, 8, None),
    (5, 16, None),
    (1, 1, None),
    (0, 1, None),
    (0, 4, None),
    (500, 1, 100),
    (70, 1, 100),
    (500, 1, 64),
    (500, 3, 48),
    (30, 64, 40),
    (1, 1, 1),
)
"""The largest batch that fits, and the arguments ``start`` and ``limit``."""


def _judge_search(
    answer: Callable[..., Any], card: _Card, start: int, limit: int | None, judge: Judge
) -> None:
    right = card.most if limit is None else min(card.most, limit)
    case = f"start={start}, limit={limit}, of which {card.most} fit"
    raised: BaseException | None = None
    try:
        got = answer(card.works, start, limit)
    except _Raised as problem:
        got, raised = None, problem.error
    tried = f"tried {card.tried[:12]}{' …' if len(card.tried) > 12 else ''} with {case}"
    if isinstance(raised, torch.OutOfMemoryError):
        judge.no("not-caught", seen=f"OutOfMemoryError; {tried}", expected=right)
    if isinstance(raised, ValueError) and "a batch is" in str(raised):
        judge.no("no-batch", seen=str(raised), expected="batches from 1 on")
    if raised is not None and not isinstance(raised, _Enough):
        raise _Raised(raised)
    if card.left_over:
        judge.no(
            "not-freed", seen="memory of the try before, still held at the next", expected="none"
        )
    if limit is not None and max(card.tried, default=0) > limit:
        judge.no("over-limit", seen=tried, expected=f"no batch above {limit}")
    if raised is None and got != right:
        judge.no("wrong-batch", seen=f"{got!r}; {tried}", expected=right)
    rises = 1 + max(0, math.ceil(math.log2((right + 1) / start)))
    top = start if right < start else min(2 ** (rises - 1) * start, (limit or math.inf) + 1)
    halvings = math.ceil(math.log2(max(top, 2)))
    if len(card.tried) > rises + halvings:
        judge.no("too-many", seen=tried, expected=f"at most {rises + halvings} tries")
    if len(set(card.tried)) < len(card.tried):
        judge.no("too-many", seen=tried, expected="no batch twice")
    doubled = [start * 2**i for i in range(rises) if limit is None or start * 2**i <= limit]
    if card.tried[: len(doubled)] != doubled:
        judge.no("not-doubling", seen=tried, expected=f"first {doubled}")


def _judge_other_errors(answer: Callable[..., Any], judge: Judge) -> None:
    for error in (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), ValueError("labels")):

        def works(batch: int, error: Exception = error) -> None:
            if batch > 3:
                raise error

        try:
            got = _raw(answer)(works, 1, 50)
        except type(error):
            continue
        judge.no("swallows", seen=f"{got!r}, although works raised {error!r}", expected=repr(error))


def _search(fits: Callable[[Callable[..., Any], int], bool]) -> Callable[..., Any]:
    """Return a search that asks in another way whether a batch fits."""

    def largest_batch(works, start=1, limit=None):
        good, bad = 0, math.inf if limit is None else limit + 1
        batch = start
        while batch < bad and fits(works, batch):
            good, batch = batch, 2 * batch
        bad = min(bad, batch)
        while bad - good > 1:
            middle = (good + bad) // 2
            good, bad = (middle, bad) if fits(works, middle) else (good, middle)
        return good

    return largest_batch


def _fits_any_error(works, batch):
    try:
        works(batch)
    except RuntimeError:
        return False
    finally:
        gc.collect()
    return True


def _fits_without_collecting(works, batch):
    try:
        works(batch)
    except torch.OutOfMemoryError:
        return False
    return True


_errors: list[BaseException] = []


def _fits_keeping_the_error(works, batch):
    try:
        works(batch)
    except torch.OutOfMemoryError as error:
        _errors[:] = [error]
        return False
    finally:
        gc.collect()
    return True


def _largest_by_doubling(works, start=1, limit=None):
    batch = 0
    try:
        while limit is None or max(2 * batch, start) <= limit:
            following = max(2 * batch, start)
            works(following)
            batch = following
            gc.collect()
    except torch.OutOfMemoryError:
        return batch
    return batch


def _largest_by_ones(works, start=1, limit=None):
    batch = 0
    while limit is None or batch < limit:
        try:
            works(batch + 1)
        except torch.OutOfMemoryError:
            break
        batch += 1
        gc.collect()
    return batch


def _largest_past_the_limit(works, start=1, limit=None):
    found = largest_batch(works, start)
    return found if limit is None else min(found, limit)


# checkpointed ------------------------------------------------------------------------------------


def checkpointed(blocks, x):
    for block in blocks:
        x = checkpoint(block, x, use_reentrant=False)
    return x


_DEPTH = 6


@_one_thread()
def _check_checkpointed(answer: Callable[..., Any], judge: Judge) -> None:
    for wanted, dropout in ((True, 0.0), (False, 0.5)):
        right = _chain(_in_order, wanted, dropout)
        got = _chain(answer, wanted, dropout, judge)
        if not torch.allclose(got["output"], right["output"], atol=1e-6):
            judge.no("other-output", seen=got["output"][0], expected=right["output"][0])
        if any(g is None for g in got["gradients"]):
            judge.no("no-gradient", seen="parameters without a gradient", expected="none")
        if wanted and got["input"] is None:
            judge.no("no-input-gradient", seen="x.grad is None", expected="a gradient")
        if _off(got["gradients"], right["gradients"]) > 1e-4 or (
            wanted and _off([got["input"]], [right["input"]]) > 1e-4
        ):
            diagnosis = "other-dropout" if dropout else "other-gradients"
            off = _off(got["gradients"], right["gradients"])
            judge.no(diagnosis, seen=f"gradients {off:.0%} off", expected="the same gradients")
        _judge_recomputation(got, right, judge)


def _judge_recomputation(got: dict[str, Any], right: dict[str, Any], judge: Judge) -> None:
    calls, peak, usual = got["calls"], got["peak"], right["peak"]
    seen = f"at most {peak:,} bytes of activations at once, without checkpoints {usual:,}"
    if calls <= _DEPTH:
        judge.no("kept", seen=f"{seen}; every block ran once", expected="most run twice")
    if peak > 0.4 * usual:
        diagnosis = "some-kept" if calls < 2 * _DEPTH else "one-piece"
        judge.no(diagnosis, seen=seen, expected=f"at most {0.4 * usual:,.0f} bytes")
    if calls > 2 * _DEPTH:
        judge.no("too-often", seen=f"{calls} runs of {_DEPTH} blocks", expected="two runs a block")


def _in_order(blocks: Sequence[nn.Module], x: Tensor) -> Tensor:
    return functools.reduce(lambda value, block: block(value), blocks, x)


def _chain(
    run: Callable[..., Any], wanted: bool, dropout: float, judge: Judge | None = None
) -> dict[str, Any]:
    """Run blocks forward and backward; return output, gradients, calls and the most activations alive."""
    torch.manual_seed(0)
    watch, calls = _Alive(), []
    blocks = [_Block(8, 32, dropout) for _ in range(_DEPTH)]
    for block in blocks:
        block.watch = watch
        block.register_forward_pre_hook(lambda *_: calls.append(1))
    x = torch.randn(16, 8, requires_grad=wanted)
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore"
        )  # PyTorch's, about use_reentrant: the diagnosis says it shorter
        output = run(blocks, x)
    if judge is not None:
        if x.requires_grad != wanted:
            judge.no("changed-input", seen="x requires a gradient now", expected="x as it was")
        judge.is_a(output, Tensor, "a tensor")
        if output.shape != x.shape:
            judge.no("other-output", seen=tuple(output.shape), expected=tuple(x.shape))
        if not output.requires_grad:
            judge.no("no-gradient", seen="an output without a graph", expected="one with")
    (output * torch.randn(16, 8)).sum().backward()
    parameters = [p for block in blocks for p in block.parameters()]
    return {
        "output": output.detach(),
        "input": x.grad,
        "gradients": [p.grad for p in parameters],
        "calls": len(calls),
        "peak": watch.peak,
    }


def _checkpointed_never(blocks, x):
    for block in blocks:
        x = block(x)
    return x


def _checkpointed_whole(blocks, x):
    return checkpoint(lambda value: _in_order(blocks, value), x, use_reentrant=False)


def _checkpointed_new_dropout(blocks, x):
    for block in blocks:
        x = checkpoint(block, x, use_reentrant=False, preserve_rng_state=False)
    return x


def _checkpointed_reentrant(blocks, x):
    for block in blocks:
        x = checkpoint(block, x, use_reentrant=True)
    return x


def _checkpointed_without_graph(blocks, x):
    for block in blocks[:-1]:
        with torch.no_grad():
            x = block(x)
    return blocks[-1](x)


def _checkpointed_first_half(blocks, x):
    half = len(blocks) // 2
    return _in_order(blocks[half:], checkpointed(blocks[:half], x))


def _checkpointed_late(blocks, x):
    for block in blocks:
        x = checkpoint(lambda value: block(value), x, use_reentrant=False)  # noqa: B023
    return x


def _checkpointed_forcing_a_graph(blocks, x):
    return _checkpointed_reentrant(blocks, x.requires_grad_())


def _checkpointed_detached(blocks, x):
    return _checkpointed_reentrant(blocks, x.detach().requires_grad_())


# batch_that_fits ---------------------------------------------------------------------------------


def batch_that_fits(small, large, capacity):
    (few, low), (many, high) = small, large
    return max(0, few + (capacity - low) * (many - few) // (high - low))


def _check_batch_that_fits(answer: Callable[..., Any], judge: Judge) -> None:
    mib = 2**20
    for small, large, capacity in (
        ((8, 500 * mib), (16, 600 * mib), 1000 * mib),
        ((10, 1000), (20, 1500), 1520),
        ((16, 600 * mib), (48, 1000 * mib), 12345 * mib),
        ((32, 700 * mib), (64, 1339 * mib), 700 * mib),
        ((32, 700 * mib), (64, 1339 * mib), 699 * mib),
        ((1, 31_000_000), (4, 31_900_000), 15_634_661_376),
        ((10, 1000), (20, 1500), 1549),
        ((10, 1000), (20, 1500), 1550),
        ((10, 1000), (20, 1500), 550),
        ((10, 1000), (20, 1500), 549),
        ((10, 1000), (20, 1500), 100),
        ((3, 1000), (10, 1100), 2205),
    ):
        right = batch_that_fits(small, large, capacity)
        got = judge.number(answer(small, large, capacity))
        if got == right:
            continue
        like = [name for name, f in _FIT_TWINS if f(small, large, capacity) == got]
        judge.no(
            "negative" if got < 0 else (like[0] if like else "wrong-batch"),
            seen=f"{got:g} for {small} and {large} in {capacity:,} bytes",
            expected=right,
        )


def _fit_in_proportion(small, large, capacity):
    return capacity * large[0] // large[1]


def _fit_in_proportion_to_small(small, large, capacity):
    return capacity * small[0] // small[1]


def _fit_without_fixed_part(small, large, capacity):
    (few, low), (many, high) = small, large
    return capacity * (many - few) // (high - low)


def _fit_rounded(small, large, capacity):
    (few, low), (many, high) = small, large
    return max(0, round(few + (capacity - low) * (many - few) / (high - low)))


def _fit_rounded_up(small, large, capacity):
    (few, low), (many, high) = small, large
    return max(0, math.ceil(few + (capacity - low) * (many - few) / (high - low)))


def _fit_on_top(small, large, capacity):
    (few, low), (many, high) = small, large
    return max(0, (capacity - low) * (many - few) // (high - low))


def _fit_fraction(small, large, capacity):
    (few, low), (many, high) = small, large
    return few + (capacity - low) * (many - few) / (high - low)


def _fit_below_zero(small, large, capacity):
    (few, low), (many, high) = small, large
    return few + (capacity - low) * (many - few) // (high - low)


def _fit_whole_slope(small, large, capacity):
    (few, low), (many, high) = small, large
    return max(0, few + (capacity - low) // ((high - low) // (many - few)))


_FIT_TWINS = (
    ("no-fixed-part", _fit_in_proportion),
    ("no-fixed-part", _fit_in_proportion_to_small),
    ("no-fixed-part", _fit_without_fixed_part),
    ("rounded", _fit_rounded),
    ("rounded-up", _fit_rounded_up),
    ("on-top", _fit_on_top),
    ("fraction", _fit_fraction),
    ("whole-slope", _fit_whole_slope),
)


# frugal_step -------------------------------------------------------------------------------------


def frugal_step(model, x, y, loss_fn, optimizer):
    optimizer.zero_grad()
    total = 0.0
    for rows, labels in zip(x.chunk(4), y.chunk(4), strict=True):
        loss = loss_fn(model(rows), labels) * len(rows) / len(x)
        loss.backward()
        total += loss.detach()
    optimizer.step()
    return total


ROWS, WIDTH, INNER, BLOCKS = 32_768, 64, 256, 10
"""The challenge's batch and network."""

ROOM, TIME = "300 MB", 1.4
"""The memory it must train in, and the most time it may take, as a multiple of the plain step's."""


def challenge_model(width: int = WIDTH, inner: int = INNER, blocks: int = BLOCKS) -> nn.Sequential:
    """Return the challenge's network: residual blocks and a head for ten classes."""
    return nn.Sequential(*(_Block(width, inner) for _ in range(blocks)), nn.Linear(width, 10))


def plain_step(model, x, y, loss_fn, optimizer):
    """Train for one step without a thought for memory."""
    optimizer.zero_grad()
    loss = loss_fn(model(x), y)
    loss.backward()
    optimizer.step()
    return loss.detach()


@_one_thread()
def _check_frugal_step(answer: Callable[..., Any], judge: Judge) -> None:
    _judge_values(answer, judge)
    if simgpu.problem():
        print("Judged without the simulated device: the result, and the activations that are kept.")
        return
    usual, most = _plain_cost()
    try:
        seconds, _ = step_cost(answer, ROOM)
    except _Raised as problem:
        if not isinstance(problem.error, torch.OutOfMemoryError):
            raise
        first = str(problem.error).split(" GPU ")[0]
        judge.no(
            "does-not-fit", seen=first, expected=f"a step in {ROOM}; plain takes {most:,} bytes"
        )
    if seconds > TIME * usual:
        judge.no(
            "too-dear",
            seen=f"{seconds / usual:.2f} times the modelled time of the plain step",
            expected=f"at most {TIME} times",
        )


def _judge_values(answer: Callable[..., Any], judge: Judge) -> None:
    """Train a narrow network on the CPU, on few rows and on all, and compare with the plain steps."""
    for sizes in ((10, 13, 11), (ROWS,)):
        right, got = _plain_steps(sizes), _steps(answer, sizes)
        if any(isinstance(loss, Tensor) and loss.requires_grad for loss in got["losses"]):
            judge.no(
                "keeps-graph", seen="a loss that requires a gradient", expected="a detached one"
            )
        losses, usual = ([judge.number(loss) for loss in run["losses"]] for run in (got, right))
        if not _norm(got["moved"]):
            judge.no("no-step", seen="the same weights as before", expected="an optimizer step")
        off = _off(got["moved"], right["moved"])
        if off > TOLERANCE:
            rows = ", ".join(f"{n:,}" for n in sizes)
            judge.no(
                _why_off(got, sizes),
                seen=f"weights whose change is {off:.1%} off that of the plain steps ({rows} rows)",
                expected=f"at most {TOLERANCE:.0%} off",
            )
        if any(abs(a - b) > TOLERANCE * b for a, b in zip(losses, usual, strict=True)):
            judge.no("other-loss", seen=losses, expected=usual)
    if simgpu.problem() and got["peak"] > 0.5 * right["peak"]:
        judge.no(
            "does-not-fit",
            seen=f"at most {got['peak']:,} bytes of activations at once",
            expected=f"at most {0.5 * right['peak']:,.0f} bytes",
        )


TOLERANCE = 0.02
"""How far the change of the weights may be from the plain steps': 16-bit formats round."""


def _why_off(got: dict[str, Any], sizes: tuple[int, ...]) -> str:
    if got["steps"] > len(sizes):
        return "many-steps"
    if got["rows"] < sum(sizes):
        return "left-out"
    for diagnosis, step in _FRUGAL_TWINS:
        if _off(got["moved"], _steps(step, sizes)["moved"]) < TOLERANCE:
            return diagnosis
    return "other-step"


def _steps(step: Callable[..., Any], sizes: tuple[int, ...]) -> dict[str, Any]:
    """Return what steps of so many rows do to a narrow network.

    That is losses, change of the weights, activations alive, updates, and rows that went in.
    """
    torch.manual_seed(0)
    watch = _Alive()
    model = challenge_model(8, 16, 4)
    before = [p.detach().clone() for p in model.parameters()]
    for block in model[:-1]:
        block.watch = watch
    # With momentum, several small updates do not add up to a large one.
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    losses, steps, rows = [], [], []
    optimizer.register_step_post_hook(lambda *_: steps.append(1))
    model[0].register_forward_pre_hook(lambda _, args: rows.append(len(args[0])))
    for size in sizes:
        x, y = torch.randn(size, 8), torch.randint(10, (size,))
        losses.append(step(model, x, y, F.cross_entropy, optimizer))
    moved = [p.detach() - b for p, b in zip(model.parameters(), before, strict=True)]
    return {
        "losses": losses,
        "moved": moved,
        "peak": watch.peak,
        "steps": len(steps),
        "rows": sum(rows),
    }


@functools.cache
def _plain_steps(sizes: tuple[int, ...]) -> dict[str, Any]:
    return _steps(plain_step, sizes)


def step_cost(step: Callable[..., Any], room: str) -> tuple[float, int]:
    """Return what one step of the challenge costs on a simulated T4: modelled seconds, bytes at most.

    Memory and time are those of the full size. The tensors have no values, so it takes neither here.

    Parameters
    ----------
    step
        ``frugal_step`` or ``plain_step``.
    room
        The device's memory, such as ``"300 MB"``.
    """
    with memory.spare_device(room) as device:
        with torch.device("meta"):
            model = challenge_model()
        with memory.Hollow():
            model.to_empty(device=device)
            x = torch.empty(ROWS, WIDTH, device=device)
            y = torch.zeros(ROWS, dtype=torch.int64, device=device)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            torch.sim.synchronize(device)
            start = simgpu.clock(device).host
            step(model, x, y, F.cross_entropy, optimizer)
            torch.sim.synchronize(device)
        return simgpu.clock(device).host - start, torch.sim.max_memory_allocated(device)


@functools.cache
def _plain_cost() -> tuple[float, int]:
    return step_cost(plain_step, "2 GB")


def _frugal_in_parts(
    parts: int, weight: Callable[[int, int], float], zero: str = "before"
) -> Callable[..., Any]:
    def frugal_step(model, x, y, loss_fn, optimizer):
        if zero == "before":
            optimizer.zero_grad()
        total = 0.0
        for rows, labels in zip(x.chunk(parts), y.chunk(parts), strict=True):
            if zero == "each":
                optimizer.zero_grad()
            loss = loss_fn(model(rows), labels) * weight(len(rows), len(x))
            loss.backward()
            total += loss.detach()
        optimizer.step()
        return total

    return frugal_step


def _frugal_many_steps(model, x, y, loss_fn, optimizer):
    total = 0.0
    for rows, labels in zip(x.chunk(4), y.chunk(4), strict=True):
        optimizer.zero_grad()
        loss = loss_fn(model(rows), labels) * len(rows) / len(x)
        loss.backward()
        optimizer.step()
        total += loss.detach()
    return total


def _frugal_quarter(model, x, y, loss_fn, optimizer):
    return plain_step(model, x[: ROWS // 4], y[: ROWS // 4], loss_fn, optimizer)


def _whole(rows: int, all_rows: int) -> float:
    return 1.0


def _share(rows: int, all_rows: int) -> float:
    return rows / all_rows


_frugal_summed = _frugal_in_parts(4, _whole)
_frugal_mean_of_means = _frugal_in_parts(4, lambda rows, all_rows: 0.25)
_frugal_piling_up = _frugal_in_parts(4, _share, zero="never")
_frugal_last_part = _frugal_in_parts(4, _whole, zero="each")
_frugal_crumbs = _frugal_in_parts(16, _share)
_FRUGAL_TWINS = (
    ("summed", _frugal_summed),
    ("mean-of-means", _frugal_mean_of_means),
    ("piles-up", _frugal_piling_up),
    ("last-part", _frugal_last_part),
    ("last-part", _frugal_in_parts(4, _share, zero="each")),
)


def _frugal_on_cpu(model, x, y, loss_fn, optimizer):
    with torch.autograd.graph.save_on_cpu():
        return plain_step(model, x, y, loss_fn, optimizer)


def _frugal_with_graph(model, x, y, loss_fn, optimizer):
    optimizer.zero_grad()
    for block in model:
        x = checkpoint(block, x, use_reentrant=False)
    loss = loss_fn(x, y)
    loss.backward()
    optimizer.step()
    return loss


# The exercises -----------------------------------------------------------------------------------

EXERCISES = (
    Exercise(
        id="06.state_bytes",
        title="What a model holds before its first batch",
        level=1,
        minutes=10,
        task="""
Write `state_bytes(model, states_per_parameter)`: a dict of what training this model holds in memory apart
from activations, in bytes, under the keys `"parameters"`, `"gradients"`, `"optimizer"` and `"buffers"`.
No gradient need exist yet. The optimizer keeps `states_per_parameter` numbers (0 for plain SGD, 1 with
momentum, 2 for Adam) for each number it trains, in that number's dtype. A frozen parameter has neither a
gradient nor a state. Dtypes differ, and a weight that two layers share is there once.
""",
        hints=(
            "One number takes `t.element_size()` bytes, and a tensor holds `t.numel()` of them.",
            "`model.parameters()` and `model.buffers()` give every tensor once, also one that two "
            "layers share. `p.requires_grad` is False for a frozen parameter.",
            "A gradient has its parameter's shape and dtype. So gradients take the bytes of the trained "
            "parameters, and the optimizer takes `states_per_parameter` times as many.",
        ),
        reference=state_bytes,
        check_answer=_check_state_bytes,
        why="This sum is the part of the memory that does not depend on the batch. For Adam in float32 it is "
        "four times the weights, and if it alone exceeds the card, no batch size helps.",
        diagnoses={
            "other-keys": "The dict has other keys than the four of the task.",
            "elements": "That is how many numbers there are, not how many bytes.",
            "always-four": "Not every tensor has four bytes a number: there are float16, float64, int64 and "
            "bool tensors here.",
            "frozen": "A frozen parameter gets no gradient, and the optimizer keeps nothing for it.",
            "tied-twice": "Two layers share one weight here, and memory holds it once.",
            "saved-buffers": "A buffer can be left out of `state_dict()` and is in memory all the same.",
            "buffers-learn": "Buffers are no parameters: they get no gradient and no optimizer state.",
            "no-gradient-yet": "No gradient exists yet: before the first backward, `p.grad` is None. Compute what "
            "the gradients *will* take.",
        },
        wrong={
            "elements": _state_in_elements,
            "always-four": _state_without_dtype,
            "frozen": _state_of_frozen,
            "tied-twice": _state_tied_twice,
            "saved-buffers": _state_saved_buffers,
            "buffers-learn": _state_buffers_learn,
            "no-gradient-yet": _state_existing_gradients,
        },
    ),
    Exercise(
        id="06.average_loss",
        title="An evaluation that keeps nothing",
        level=2,
        minutes=8,
        task="""
Write `average_loss(model, batches, loss_fn)`: the mean loss of one sample, as a Python number.
`batches` gives `(x, y)` pairs one at a time, of unequal size; `loss_fn(outputs, y)` is the mean over a
batch. The model is in eval mode already. Nothing may pile up from batch to batch: no activations, no outputs,
no inputs. And no graph may be built. The check looks at what is alive.
""",
        hints=(
            "What do you carry from one batch to the next? A tensor that still has a graph keeps every "
            "activation that led to it.",
            "`with torch.inference_mode():` around the loop builds no graph at all; `.item()` turns a loss "
            "into a number.",
            "Carry two numbers: `loss.item() * len(x)` summed, and `len(x)` summed.",
        ),
        reference=average_loss,
        check_answer=_check_average_loss,
        why="A leak of this kind does not show in the first batches. The evaluation runs out of memory in its "
        "middle, where the batch is no larger than before.",
        diagnoses={
            "leak": "Each batch adds to what is kept: something that you carry, a running total or a list of "
            "losses, still has its graph, and the graph holds the activations of every batch so far.",
            "graph": "Nothing piles up, but each forward pass still saves its activations for a backward pass "
            "that never comes.",
            "keeps-batches": "Every batch is still in memory at the end. Something holds them: a list made of "
            "`batches`, for example.",
            "keeps-outputs": "The outputs of every batch are still in memory at the end.",
            "tensor": "The mean is a tensor. On a GPU it would keep a place there, and more if it had a graph.",
            "mean-of-means": "The mean over batches is not the mean over samples where batches differ in size.",
            "unweighted": "A batch's loss is already a mean over its rows. Before you divide by all rows, it has "
            "to count once for each of its own.",
            "by-batches": "The sum counts rows, and you divide it by the number of batches.",
            "last-only": "That is the loss of the last batch alone.",
            "used-up": "`batches` can be gone through only once: a second loop over it finds nothing.",
            "not-all": "Not every batch was asked for.",
        },
        wrong={
            "leak": _average_with_graph,
            "graph": _average_with_short_graph,
            "keeps-batches": _average_of_list,
            "keeps-outputs": _average_of_outputs,
            **_LOSS_TWINS,
            "tensor": _average_as_tensor,
        },
    ),
    Exercise(
        id="06.diagnose",
        title="Read an out-of-memory message",
        level=2,
        minutes=10,
        task="""
`memory.figures(message)` gives the figures of an out-of-memory message in bytes: `"requested"`,
`"capacity"`, `"free"` (what nobody holds), `"process"` (what this process holds), and of that `"allocated"`
(tensors) and `"unallocated"` (reserved by PyTorch, and unused). Write `diagnose(message)`, which returns

- `"fragmented"` where the request is no more than what is free and unallocated together: the bytes are
  there, only not in one piece;
- else `"someone else"` where it would fit into that together with all that other processes hold;
- else `"too large"`.
""",
        hints=(
            "Two sums decide. What is within PyTorch's reach, and what do others hold?",
            "Others hold what is neither free nor this process's: capacity - free - process.",
            'Compare `figures["requested"]` with the first sum, then with both together.',
        ),
        reference=diagnose,
        check_answer=_check_diagnose,
        why="The three have different cures: a smaller batch does not help against another process, and "
        "`expandable_segments` does nothing for a model that is too large.",
        diagnoses={
            "other-word": "The answer is none of the three texts.",
            "not-enough": "Even all that is free and unallocated together is less than the request, so pieces "
            "are not the problem. The message gives the same advice every time.",
            "would-not-help": "Even with all that others hold, the request would not fit. (A little that seems "
            "to be theirs may be the rounding of the figures, or this process's own CUDA context.)",
            "enough-in-pieces": "What is free and unallocated together is enough for the request. It "
            "failed because no single piece is.",
            "not-their-fault": "Others hold memory here, but this process has enough bytes without theirs. Look "
            "at the pieces first.",
            "others-missed": "Part of the card is neither free nor this process's. With it, the request would "
            "fit.",
        },
        wrong={
            "not-enough": _diagnose_by_advice,
            "enough-in-pieces": _diagnose_by_free,
            "others-missed": _diagnose_without_others,
            "not-their-fault": _diagnose_any_others,
            "would-not-help": _diagnose_others_always,
        },
    ),
    Exercise(
        id="06.largest_batch",
        title="A search that survives running out of memory",
        level=3,
        minutes=15,
        task="""
Write `largest_batch(works, start=1, limit=None)`: the largest batch for which `works(batch)` does not
raise `torch.OutOfMemoryError`; 0 where not even 1 works. Try `start`, then twice as much each time, until
one does not fit; then halve the gap between the last that fitted and the first that did not. Never try more
than `limit`, where there is one, nor the same batch twice. Before each try, all memory of the
try before must be free: leave the `except` block, and call `gc.collect()`. Any other error passes through.
""",
        hints=(
            "Write a helper `fits(batch)` with `try`, `except` and one `gc.collect()` at its end. It returns "
            "True or False, and keeps nothing.",
            "Two numbers move towards each other: `good`, the largest known to fit (0 at first), and `bad`, the "
            "smallest known not to (`limit + 1`, or infinity).",
            "While `bad - good > 1`, try the middle. `except RuntimeError` catches too much: "
            "`torch.OutOfMemoryError` is only one of its kinds.",
        ),
        reference=largest_batch,
        check_answer=_check_largest_batch,
        why="An error holds its traceback, the traceback its frames, and the frames their tensors. A search that "
        "tries again while it holds the error fails at batches that would fit.",
        diagnoses={
            "not-caught": "Running out of memory ended the search, instead of telling it something.",
            "swallows": "An error that is not about memory was taken for one. A wrong shape in the model would "
            "now look like a batch that is too large.",
            "not-freed": "When the next batch was tried, memory of the try before was still held: by the error "
            "and its traceback, or by objects that refer to each other and wait for the garbage collector.",
            "over-limit": "A batch above `limit` was tried.",
            "wrong-batch": "That is not the largest batch that fits.",
            "too-many": "That took more tries than doubling and halving need, or some batch was tried twice.",
            "not-doubling": "The first tries are not `start`, twice that, four times that, and so on.",
            "no-batch": "A batch of 0 or a broken batch was tried.",
        },
        wrong={
            "swallows": _search(_fits_any_error),
            "not-freed": _search(_fits_without_collecting),
            "wrong-batch": _largest_by_doubling,
            "too-many": _largest_by_ones,
            "over-limit": _largest_past_the_limit,
        },
    ),
    Exercise(
        id="06.batch_that_fits",
        title="Two measurements and a straight line",
        level=2,
        minutes=8,
        task="""
Peak memory is a straight line in the batch size: a fixed part, and so many bytes a sample. Write
`batch_that_fits(small, large, capacity)`: `small` and `large` are measured pairs of (batch, peak bytes), and
back comes the largest whole batch whose peak on that line is at most `capacity`; 0 where none is.
""",
        hints=(
            "The slope is the difference in bytes over the difference in batch.",
            "The fixed part is the small peak less the slope times the small batch.",
            "Divide what is left of the capacity by the slope, and round down with `//`. Multiply before you "
            "divide, and the arithmetic stays exact.",
        ),
        reference=batch_that_fits,
        check_answer=_check_batch_that_fits,
        why="Two cheap runs replace a search, and a rule of three does not: it also shrinks the weights and the "
        "optimizer's state, which do not shrink.",
        diagnoses={
            "no-fixed-part": "That is a line through zero. A batch of none would still need the model.",
            "rounded": "A batch that is rounded up does not fit.",
            "rounded-up": "A batch that is rounded up does not fit.",
            "on-top": "That is how many samples fit on top of the small batch, not how many fit in all.",
            "fraction": "A batch is a whole number.",
            "whole-slope": "The bytes a sample need not be a whole number: only the batch is rounded.",
            "negative": "No batch is less than nothing: where the fixed part alone is too much, the answer is 0.",
            "wrong-batch": "That is not where the line meets the capacity.",
        },
        wrong={
            "no-fixed-part": _fit_in_proportion,
            "rounded": _fit_rounded,
            "rounded-up": _fit_rounded_up,
            "on-top": _fit_on_top,
            "fraction": _fit_fraction,
            "whole-slope": _fit_whole_slope,
            "negative": _fit_below_zero,
        },
    ),
    Exercise(
        id="06.checkpointed",
        title="Compute it twice instead of keeping it",
        level=2,
        minutes=10,
        task="""
Write `checkpointed(blocks, x)`: run `x` through a list of modules, one after the other, so that autograd
keeps little more than what goes **into** each block, and computes the inside again when backward comes to it.
Output and gradients must be those of the plain run, with dropout too, and also where `x` itself needs no
gradient. `torch.utils.checkpoint.checkpoint` is imported as `checkpoint`.
""",
        hints=(
            "`checkpoint(function, *arguments, use_reentrant=False)` calls the function and keeps only its "
            "arguments.",
            "One checkpoint around everything frees nothing when it counts: backward would compute all of it "
            "again before it can begin.",
            "One line in a loop: `x = checkpoint(...)`, with the block as the function.",
        ),
        reference=checkpointed,
        check_answer=_check_checkpointed,
        why="Activations are most of the memory of many trainings. One more forward pass, a third more "
        "arithmetic, buys most of them back, the more the deeper the network.",
        diagnoses={
            "kept": "Every block ran once: nothing was computed again, so all activations were kept.",
            "some-kept": "Some blocks keep their inside: they ran only once.",
            "one-piece": "Too many blocks are computed again at once, and then all their activations are in "
            "memory together. Make the pieces smaller.",
            "other-dropout": "The second run of a block drew other random numbers than the first, so the "
            "gradients belong to another forward pass.",
            "no-gradient": "Parameters came out without gradients. The graph was cut, or the reentrant form of "
            "checkpointing saw an input that needs no gradient and built none.",
            "no-input-gradient": "A detached copy of `x` went through the blocks, so whatever made `x` would learn "
            "nothing.",
            "other-gradients": "The gradients are not those of the plain run. (A lambda in a loop sees the last "
            "block when backward comes: hand over `block` itself.)",
            "other-output": "The output is not that of the blocks in their order.",
            "too-often": "A block was computed more than twice.",
        },
        wrong={
            "kept": _checkpointed_never,
            "some-kept": _checkpointed_first_half,
            "one-piece": _checkpointed_whole,
            "other-dropout": _checkpointed_new_dropout,
            "no-gradient": _checkpointed_reentrant,
            "no-input-gradient": _checkpointed_detached,
            "changed-input": _checkpointed_forcing_a_graph,
            "other-gradients": _checkpointed_late,
        },
    ),
    Exercise(
        # 900 MB, 300 MB, more than 1.4 times, 2 %: setting
        # less than 2 MB: arithmetic 1331240 / 10**6
        id="06.frugal_step",
        title="Challenge: 900 MB of training in 300 MB",
        level=3,
        minutes=25,
        task="""
`plain_step` needs almost 900 MB for this network and batch. Write `frugal_step(model, x, y, loss_fn,
optimizer)`: the same training step, with the same loss given back (detached) and the same change of the
weights, on a simulated T4 of **300 MB**, at no more than **1.4 times** the modelled time of `plain_step`.
`loss_fn` is a mean over the batch; `model` can be walked through block by block. In 16 bits the change of
the weights may be 2 % off, and so may the loss. More than one way is right.
""",
        hints=(
            "What takes the memory? The parameters here are less than 2 MB. Which of the lesson's methods make the "
            "rest smaller, and what does each cost in time?",
            "The whole batch need not be in the forward pass at once. How is the mean of parts of unequal size "
            "put together?",
            "Go through `x.chunk(n)` and `y.chunk(n)`; each part's loss counts with its share of the rows; "
            "`backward()` adds up; one `optimizer.step()`. Many small parts cost launches, so take few.",
        ),
        reference=frugal_step,
        check_answer=_check_frugal_step,
        why="The same lines help a network that is too large for a real card. Which method is cheapest depends on the "
        "network and on the card: measure two before you choose.",
        diagnoses={
            "does-not-fit": "The step needs more memory than there is.",
            "too-dear": "It fits, but it takes too long. Work cut into too many pieces, a way over the bus, or a "
            "16-bit format that a T4 does not have (use `torch.float16`), costs more than computing something twice.",
            "summed": "The gradients are several times too large: each part's loss is a mean over its own rows, and "
            "the parts are added up.",
            "mean-of-means": "The parts are not equally large, and a small one counts as much as a large one.",
            "piles-up": "The gradients of the step before are still in the sum.",
            "many-steps": "The optimizer changed the weights after each part. The parts belong to one step: their "
            "gradients add up first.",
            "last-part": "Only the last part's gradients were left: `zero_grad()` belongs before all parts, not "
            "before each.",
            "left-out": "Not all rows of the batch went through the network.",
            "other-step": "The weights are not those of the plain steps.",
            "no-step": "The weights did not change.",
            "other-loss": "The loss given back is not the mean over the batch.",
            "keeps-graph": "The loss given back still has its graph. Detach it, so that nothing is kept.",
        },
        wrong={
            "does-not-fit": plain_step,
            "too-dear": _frugal_crumbs,
            "summed": _frugal_summed,
            "mean-of-means": _frugal_mean_of_means,
            "piles-up": _frugal_piling_up,
            "many-steps": _frugal_many_steps,
            "last-part": _frugal_last_part,
            "left-out": _frugal_quarter,
            "keeps-graph": _frugal_with_graph,
        },
        limit=60.0,
        may_change=True,
    ),
)
