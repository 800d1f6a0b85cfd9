"""Lesson 08, part B: mixed precision (lesson 04)."""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ... import memory, simgpu
from ..core import Exercise, Judge
from .common import other_device, unguarded

# leaving -----------------------------------------------------------------------------------------


def leaving():
    product = "float16"
    residual = "float32"
    activated = "float16"
    mean = "float16"
    total = "float32"
    added_in_place = "float16"
    return product, residual, activated, mean, total, added_in_place


def six_results(x, w):
    h = x @ w
    return h, h + x, F.gelu(h), h.mean(), h.sum(), h.add_(x)


LEAVING = ("float16", "float32", "float16", "float16", "float32", "float16")
"""What leaves ``six_results`` on a GPU under float16 autocast; for a PyTorch without the simulated device."""

_NAMES = ("the product", "h + x", "gelu(h)", "h.mean()", "h.sum()", "h.add_(x)")
_LEAVING_FAULTS = ("product", "residual", "activation", "mean", "sum", "in-place")


def traced_dtypes() -> tuple[str, ...]:
    """Run ``six_results`` under autocast on a simulated device; return the dtypes."""
    if simgpu.problem():
        return LEAVING
    with memory.spare_device("1 GB") as device:
        x, w = torch.ones(4, 4, device=device), torch.ones(4, 4, device=device)
        with torch.autocast(device.type, dtype=torch.float16):
            found = tuple(str(t.dtype).removeprefix("torch.") for t in six_results(x, w))
        del x, w
    return found


def _check_leaving(answer: Any, judge: Judge) -> None:
    judge.is_a(answer, (tuple, list), "six names of dtypes")
    names = [str(name).removeprefix("torch.") for name in answer]
    right = traced_dtypes()
    if len(names) != len(right):
        judge.no("six", seen=f"{len(names)} names", expected="six")
    for name in names:
        if name not in ("float16", "float32", "bfloat16", "float64"):
            judge.no("no-dtype", seen=name, expected="float16 or float32")
    if len(set(names)) == 1:
        judge.no("all-equal", seen=names[0], expected="some of each")
    for fault, what, got, expected in zip(_LEAVING_FAULTS, _NAMES, names, right, strict=True):
        if got != expected:
            hits = sum(map(str.__eq__, names, right))
            judge.no(fault, seen=f"{got} for {what}; {hits} of 6 are right")


def _leaving_with(place: int) -> tuple[str, ...]:
    other = {"float16": "float32", "float32": "float16"}
    return tuple(other[d] if i == place else d for i, d in enumerate(LEAVING))


# fit_mixed ---------------------------------------------------------------------------------------


def fit_mixed(model, batches, optimizer):
    device = next(model.parameters()).device
    dtype = torch.bfloat16 if device.type == "cpu" else torch.float16
    scaler = torch.amp.GradScaler(device.type, enabled=dtype == torch.float16)
    for x, y in batches:
        with torch.autocast(device.type, dtype=dtype):
            loss = F.cross_entropy(model(x.to(device)), y.to(device))
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


class _Fit:
    """A model on a device; notes what its layers return, how often the scaler's work is done, and by whom."""

    def __init__(self, device: torch.device, seed: int) -> None:
        torch.manual_seed(seed)
        self.model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3)).to(device)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1, momentum=0.9)
        self.dtypes: set[torch.dtype] = set()
        self.steps = 0
        self.asleep = 0.0
        self.seen: list[float] = []
        for p in self.model.parameters():  # left over from an earlier step
            p.grad = torch.ones_like(p)
        for layer in (self.model[0], self.model[2]):
            layer.register_forward_hook(lambda *args: self.dtypes.add(args[2].dtype))
        self.model[2].bias.register_hook(self._gradient)
        self.optimizer.register_step_post_hook(self._step)

    def _gradient(self, gradient: Tensor) -> None:
        self.seen.append(float(gradient.detach().cpu().abs().max()))

    def _step(self, *_: Any) -> None:
        self.steps += 1

    def weights(self) -> Tensor:
        """All weights, on the host."""
        return torch.cat([p.detach().cpu().flatten() for p in self.model.parameters()])


def _labelled(sizes: tuple[int, ...], factor: float = 1.0) -> list[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(sum(sizes))
    return [
        (
            factor * torch.randn(n, 6, generator=generator),
            torch.randint(0, 3, (n,), generator=generator),
        )
        for n in sizes
    ]


def _check_fit_mixed(answer: Callable[..., Any], judge: Judge) -> None:
    with other_device() as other:
        devices = [torch.device("cpu")] + ([other] if other.type != "meta" else [])
        for device in devices:
            batches = _labelled((4, 5, 3))
            if device.type != "cpu":  # the second batch overflows in float16: its step is left out
                batches[1] = (batches[1][0] * 3e4, batches[1][1])
            fit, right = _Fit(device, 1), _Fit(device, 1)
            with warnings.catch_warnings(record=True) as warned:
                warnings.simplefilter("always")
                answer(fit.model, batches, fit.optimizer)
            fit_mixed(right.model, batches, right.optimizer)
            _judge_fit(fit, right, device, [str(w.message) for w in warned], judge)


def _judge_fit(
    fit: _Fit, right: _Fit, device: torch.device, warned: list[str], judge: Judge
) -> None:
    if any("torch.cuda.amp" in text for text in warned):
        judge.no("deprecated", seen=next(t for t in warned if "torch.cuda.amp" in t).split("\n")[0])
    if {p.dtype for p in fit.model.parameters()} != {torch.float32}:
        judge.no("half-model", seen="weights in 16 bits", expected="weights in float32")
    found = ", ".join(sorted(str(d) for d in fit.dtypes)) or "nothing"
    shown = {"seen": f"{found} out of the layers on {device.type}", "expected": str(*right.dtypes)}
    if fit.dtypes == {torch.float32}:
        judge.no("still-float32", **shown)
    if fit.dtypes != right.dtypes:
        judge.no("other-dtype", **shown)
    factor = fit.seen[0] / right.seen[0]
    if device.type != "cpu" and factor < 1e-3:
        judge.no("no-scaler", seen="a backward pass of the loss as it is", expected="scaled")
    if device.type == "cpu" and factor > 1e3:
        judge.no("scaler-for-bf16", seen="scaled gradients with bfloat16", expected="not scaled")
    if len(fit.seen) == len(right.seen) > 2 and device.type != "cpu":
        later = fit.seen[2] / right.seen[2]
        if later > 1.5:
            judge.no("new-scaler", seen=f"a scale {later:.1f} times too large after an overflow")
    if fit.steps > right.steps:
        judge.no("steps-on", seen="a step with gradients that are not finite", expected="left out")
    if not torch.allclose(fit.weights(), right.weights(), rtol=0.02, atol=2e-3):
        judge.no(
            "other-weights", seen=f"off by {(fit.weights() - right.weights()).abs().max():.2g}"
        )


def _fit_with(
    autocast: Callable[[Any], Any] | None = None,
    dtype_of: Callable[[torch.device], torch.dtype] = lambda d: (
        torch.bfloat16 if d.type == "cpu" else torch.float16
    ),
    scales: Callable[[torch.dtype], bool] = lambda dtype: dtype == torch.float16,
    each: bool = False,
    bare: bool = False,
    zero: bool = True,
) -> Callable[..., Any]:
    """The training with one thing done otherwise."""

    def fit_mixed(model, batches, optimizer):
        device = next(model.parameters()).device
        dtype = dtype_of(device)
        scaler = torch.amp.GradScaler(device.type, enabled=scales(dtype))
        for x, y in batches:
            if each:
                scaler = torch.amp.GradScaler(device.type, enabled=scales(dtype))
            block = autocast(device) if autocast else torch.autocast(device.type, dtype=dtype)
            with block:
                loss = F.cross_entropy(model(x.to(device)), y.to(device))
            if zero:
                optimizer.zero_grad()
            scaler.scale(loss).backward()
            if bare:
                scaler.unscale_(optimizer)
                optimizer.step()
            else:
                scaler.step(optimizer)
            scaler.update()

    return fit_mixed


def _old_autocast(device: torch.device) -> Any:
    return torch.cuda.amp.autocast()


def _fit_half_model(model, batches, optimizer):
    model.bfloat16()
    for x, y in batches:
        device = next(model.parameters()).device
        loss = F.cross_entropy(model(x.to(device).bfloat16()), y.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


# without_sigmoid ---------------------------------------------------------------------------------


def without_sigmoid(model):
    return model[:-1], nn.BCEWithLogitsLoss(), lambda logits: logits > 0


def _gate(scale: float) -> nn.Sequential:
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 1), nn.Sigmoid())
    with torch.no_grad():
        model[2].weight.mul_(scale)
    return model


def _check_without_sigmoid(answer: Callable[..., Any], judge: Judge) -> None:
    x = torch.randn(32, 4, generator=torch.Generator().manual_seed(5))
    for scale in (1.0, 3.0):
        model = _gate(scale)
        got = judge.is_a(answer(model), (tuple, list), "a tuple: network, loss, decide")
        if len(got) != 3:
            judge.no("three", seen=f"{len(got)} things", expected="network, loss function, decide")
        network, loss_fn, decide = got
        judge.is_a(network, nn.Module, "a module")
        probabilities = model(x).detach()
        logits = judge.is_a(network(x), Tensor, "a tensor from the network")
        if torch.allclose(logits, probabilities):
            judge.no("sigmoid-stays", seen=f"outputs from {logits.min():.2f} to {logits.max():.2f}")
        if logits.shape != probabilities.shape or not torch.allclose(
            logits, torch.logit(probabilities), atol=1e-4
        ):
            judge.no("other-network", seen=logits[0], expected=torch.logit(probabilities[0]))
        if {id(p) for p in network.parameters()} != {id(p) for p in model.parameters()}:
            judge.no("copies", seen="other parameter objects", expected="those of the model")
        _judge_loss(loss_fn, logits.detach(), probabilities, judge)
        _judge_decide(decide, logits.detach(), probabilities, judge)


def _judge_loss(loss_fn: Any, logits: Tensor, probabilities: Tensor, judge: Judge) -> None:
    targets = (torch.arange(len(logits)) % 3 == 0).float().unsqueeze(1)
    right = F.binary_cross_entropy(probabilities, targets)
    try:
        got = judge.number(loss_fn(logits, targets).detach())
    except RuntimeError as error:  # probabilities outside 0 to 1
        judge.no("no-logits", seen=str(error).split("\n")[0], expected="a loss of logits")
    known = {
        "squared": F.mse_loss(logits, targets),
        "squared-outputs": F.mse_loss(probabilities, targets),
        "twice": F.binary_cross_entropy_with_logits(probabilities, targets),
        "sum": F.binary_cross_entropy(probabilities, targets, reduction="sum"),
    }
    if not math.isclose(got, right, rel_tol=1e-4):
        like = [n for n, v in known.items() if math.isclose(got, v, rel_tol=1e-4)]
        kind = {"squared-outputs": "squared"}.get(like[0], like[0]) if like else "other-loss"
        judge.no(kind, seen=got, expected=float(right))
    far = torch.tensor([[200.0], [-200.0]])
    got = loss_fn(far, torch.tensor([[0.0], [1.0]]))
    if not math.isclose(float(got), 200.0, rel_tol=1e-4):
        judge.no("saturates", seen=f"{float(got):g} for logits of ±200", expected="200")


def _judge_decide(decide: Any, logits: Tensor, probabilities: Tensor, judge: Judge) -> None:
    if not callable(decide):
        judge.no("no-decide", seen=decide, expected="a function of logits")
    edges = torch.tensor([[-2.0], [-0.1], [0.0], [0.2], [0.7], [3.0]])
    for values, expected in ((edges, torch.sigmoid(edges) > 0.5), (logits, probabilities > 0.5)):
        got = judge.is_a(decide(values), Tensor, "a tensor from decide")
        if got.dtype != torch.bool:
            judge.no("not-bool", seen=got.dtype, expected=torch.bool)
        if torch.equal(got, expected):
            continue
        kind = "other-decision"
        if torch.equal(got, values > 0.5):
            kind = "old-threshold"
        elif torch.equal(got, ~expected):
            kind = "turned-round"
        judge.no(
            kind, seen=f"{int(got.sum())} of {len(got)} decided yes", expected=int(expected.sum())
        )


def _parts(
    network: Callable[[nn.Sequential], nn.Module] = lambda model: model[:-1],
    loss: Callable[[], Any] = nn.BCEWithLogitsLoss,
    decide: Callable[[Tensor], Tensor] = lambda logits: logits > 0,
) -> Callable[..., Any]:
    def without_sigmoid(model):
        return network(model), loss(), decide

    return without_sigmoid


def _sigmoid_then_bce() -> Callable[[Tensor, Tensor], Tensor]:
    return lambda logits, targets: F.binary_cross_entropy(torch.sigmoid(logits), targets)


# averaged ----------------------------------------------------------------------------------------


def averaged(states, decay):
    average = {}
    for state in states:
        for name, value in state.items():
            if not value.is_floating_point():
                average[name] = value.clone()
            elif name in average:
                average[name].lerp_(value.float(), 1 - decay)
            else:
                average[name] = value.to(torch.float32, copy=True)
    return average


def _course(dtype: torch.dtype, values: list[float]) -> Iterator[dict[str, Tensor]]:
    """The live state of a network while it is trained: the same tensors each time, with new values."""
    state = {
        "weight": torch.zeros(2, 3, dtype=dtype),
        "bias": torch.zeros(3, dtype=dtype),
        "running_mean": torch.zeros(3),
        "num_batches_tracked": torch.tensor(0),
    }
    for step, value in enumerate(values, start=1):
        state["weight"].fill_(value)
        state["bias"].copy_(torch.tensor([value, -value, 0.5]))
        state["running_mean"].fill_(value / 2)
        state["num_batches_tracked"].fill_(step)
        yield state


_COURSES = (
    (torch.bfloat16, [1.0, *[1.25] * 150], 0.99),
    (torch.float16, [2.0, *[2.125] * 60], 0.995),
    (torch.float32, [3.0, 1.0, 2.0, 5.0], 0.75),
    (torch.float32, [0.5], 0.9),
    (torch.bfloat16, [0.25, 0.5], 0.5),
)


def _check_averaged(answer: Callable[..., Any], judge: Judge) -> None:
    for dtype, values, decay in _COURSES:
        got = judge.is_a(answer(_course(dtype, values), decay), dict, "a dict of tensors")
        right = averaged(_course(dtype, values), decay)
        if set(got) != set(right):
            judge.no("other-names", seen=sorted(got), expected=sorted(right))
        count = got["num_batches_tracked"]
        if count.dtype != torch.int64 or int(count) != len(values):
            judge.no("averages-counter", seen=count, expected=right["num_batches_tracked"])
        if got["weight"].dtype != torch.float32:
            judge.no("in-16-bits", seen=got["weight"].dtype, expected=torch.float32)
        off = [
            n for n in right if not torch.allclose(got[n].double(), right[n].double(), rtol=1e-5)
        ]
        if not off:
            continue
        name = off[0]
        case = f"from {values[0]} to {values[-1]} in {len(values)} {dtype} states, decay {decay}"
        known = {n: twin(_course(dtype, values), decay) for n, twin in _AVERAGE_TWINS.items()}
        like = [
            n for n, d in known.items() if torch.allclose(d["bias"].float(), got["bias"], rtol=1e-4)
        ]
        judge.no(
            like[0] if like else "wrong-average",
            seen=f"{name}: {got[name].flatten()[0].item():.6g} {case}",
            expected=f"{right[name].flatten()[0].item():.6g}",
        )


def _average_with(
    first: Callable[[Tensor], Tensor] = lambda v: v.to(torch.float32, copy=True),
    mix: Callable[[Tensor, Tensor, float], Tensor] = lambda a, v, d: d * a + (1 - d) * v.float(),
    whole: Callable[[Tensor], bool] = lambda v: not v.is_floating_point(),
    last: Callable[[Tensor], Tensor] = lambda a: a,
) -> Callable[..., Any]:
    """The average with one thing done otherwise."""

    def averaged(states, decay):
        average = {}
        for state in states:
            for name, value in state.items():
                if whole(value):
                    average[name] = value.clone()
                else:
                    old = average[name] if name in average else first(value)
                    average[name] = mix(old, value, decay) if name in average else old
        return {name: last(value) if not whole(value) else value for name, value in average.items()}

    return averaged


def _average_in_place(states, decay):
    average = {}
    for state in states:
        for name, value in state.items():
            if value.is_floating_point() and name in average:
                average[name].lerp_(value.float(), 1 - decay)
            else:
                average[name] = value.float() if value.is_floating_point() else value.clone()
    return average


def _mean_of_all(states, decay):
    kept = [copy.deepcopy(state) for state in states]
    mean = {n: torch.stack([s[n].float() for s in kept]).mean(0) for n in kept[0]}
    return mean | {"num_batches_tracked": kept[-1]["num_batches_tracked"]}


def _rounded_mix(average: Tensor, value: Tensor, decay: float) -> Tensor:
    return (decay * average.to(value.dtype) + (1 - decay) * value).to(value.dtype)


_AVERAGE_TWINS: dict[str, Callable[..., Any]] = {
    "rounds-each": _average_with(
        first=torch.clone, mix=_rounded_mix, last=lambda average: average.float()
    ),
    "swapped": _average_with(mix=lambda a, v, d: (1 - d) * a + d * v.float()),
    "from-zero": _average_with(
        first=lambda v: torch.zeros(v.shape),
        mix=lambda a, v, d: d * a + (1 - d) * v.float(),
    ),
    "plain-mean": _mean_of_all,
    "alias": _average_in_place,
}


# two_steps ---------------------------------------------------------------------------------------


def two_steps(model, x, y, loss_fn, optimizers, scaler, dtype):
    with torch.autocast(x.device.type, dtype=dtype):
        loss = loss_fn(model(x), y)
    for optimizer in optimizers:
        optimizer.zero_grad()
    scaler.scale(loss).backward()
    for optimizer in optimizers:
        scaler.step(optimizer)
    scaler.update()
    return loss.detach()


class _Pair:
    """A network in two parts, an optimiser for each, and one scaler that changes its scale soon.

    Attributes
    ----------
    factors
        What the gradients of the two parts are multiplied by: ``inf`` makes one overflow by itself.
    """

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))
        body, head = self.model[0], self.model[2]
        self.optimizers = [
            torch.optim.SGD(body.parameters(), lr=0.1),
            torch.optim.AdamW(head.parameters(), lr=0.01),
        ]
        self.scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=2)
        self.factors = [1.0, 1.0]
        self.bare = [0, 0]
        self.outputs: set[torch.dtype] = set()
        for i, layer in enumerate((body, head)):
            for p in layer.parameters():
                p.grad = torch.full_like(p, 0.5)  # left over from an earlier step
                p.register_hook(lambda g, i=i: g * self.factors[i])
        head.register_forward_hook(lambda *args: self.outputs.add(args[2].dtype))

    def weights(self) -> list[Tensor]:
        """The weights of the two parts."""
        return [
            torch.cat([p.detach().flatten().clone() for p in self.model[i].parameters()])
            for i in (0, 2)
        ]

    def is_like(self, other: _Pair) -> bool:
        """Whether scale and weights are those of another pair."""
        return self.scaler.get_scale() == other.scaler.get_scale() and all(
            torch.allclose(a, b, rtol=1e-3, atol=1e-5, equal_nan=True)
            for a, b in zip(self.weights(), other.weights(), strict=True)
        )


_REFUSED = {
    "since the last update": "no-update",
    "_scale is None": "not-scaled",
    "inf checks": "refused",
}
_OVERFLOWS = ((1.0, 1.0), (math.inf, 1.0), (1.0, 1.0), (1.0, 1.0), (1.0, math.inf), (1.0, 1.0))


def _check_two_steps(answer: Callable[..., Any], judge: Judge) -> None:
    answer = unguarded(answer)
    pair, right = _Pair(), _Pair()
    others = {name: _Pair() for name in _TWO_TWINS}
    batches = _labelled((4, 5, 3, 4, 6, 4))
    for (x, y), factors in zip(batches, _OVERFLOWS, strict=True):
        for one in (pair, right, *others.values()):
            one.factors[:] = factors
        given = (F.cross_entropy, pair.optimizers, pair.scaler, torch.float16)
        try:
            got = answer(pair.model, x, y, *given)
        except (RuntimeError, AssertionError) as error:
            for words, kind in _REFUSED.items():
                if words in str(error):
                    judge.no(kind, seen=str(error), expected="calls in their order")
            raise
        expected = two_steps(
            right.model, x, y, F.cross_entropy, right.optimizers, right.scaler, torch.float16
        )
        for name, twin in _TWO_TWINS.items():
            other = others[name]
            twin(other.model, x, y, F.cross_entropy, other.optimizers, other.scaler, torch.float16)
        if pair.outputs != {torch.float16}:
            judge.no("no-autocast", seen=f"{pair.outputs}", expected="float16 out of the layers")
        _judge_pair(pair, right, others, factors, judge)
        judge.is_a(got, Tensor, "a tensor")
        if got.requires_grad:
            judge.no("keeps-graph", seen=got, expected="the loss without its graph")
        judge.close(got, expected.item(), "scaled-loss", rel=1e-3)


def _judge_pair(
    pair: _Pair, right: _Pair, others: dict[str, _Pair], factors: tuple[float, ...], judge: Judge
) -> None:
    if pair.is_like(right):
        return
    like = [name for name, other in others.items() if pair.is_like(other)]
    case = "".join(
        f", after the {part} overflowed"
        for part, f in zip(("first", "second"), factors, strict=True)
        if f > 1
    )
    judge.no(
        like[0] if like else "other-step",
        seen=f"scale {pair.scaler.get_scale():g}, weights "
        + ("as they should be" if _same_weights(pair, right) else "that are others")
        + case,
        expected=f"scale {right.scaler.get_scale():g}",
    )


def _same_weights(pair: _Pair, right: _Pair) -> bool:
    return all(
        torch.allclose(a, b, rtol=1e-3, atol=1e-5)
        for a, b in zip(pair.weights(), right.weights(), strict=True)
    )


def _two_with(
    zero: int = 2,
    update_each: bool = False,
    all_or_none: bool = False,
    bare: bool = False,
    scale: bool = True,
    update: bool = True,
) -> Callable[..., Any]:
    """The step with one thing done otherwise."""

    def two_steps(model, x, y, loss_fn, optimizers, scaler, dtype):
        with torch.autocast(x.device.type, dtype=dtype):
            loss = loss_fn(model(x), y)
        for optimizer in optimizers[:zero]:
            optimizer.zero_grad()
        (scaler.scale(loss) if scale else loss).backward()
        gradients = [p.grad for p in model.parameters()]
        finite = all(bool(g.isfinite().all()) for g in gradients)
        for i, optimizer in enumerate(optimizers):
            if bare and i:
                scaler.unscale_(optimizer)
                optimizer.step()
            elif finite or not all_or_none:
                scaler.step(optimizer)
            else:
                scaler.unscale_(optimizer)
            if update_each:
                scaler.update()
        if update and not update_each:
            scaler.update()
        return loss.detach()

    return two_steps


_TWO_TWINS: dict[str, Callable[..., Any]] = {
    "update-each": _two_with(update_each=True),
    "skips-both": _two_with(all_or_none=True),
    "bare-step": _two_with(bare=True),
    "piles-up": _two_with(zero=1),
    "piles-up-both": _two_with(zero=0),
}


def _two_in_float32(model, x, y, loss_fn, optimizers, scaler, dtype):
    return two_steps(model, x, y, loss_fn, optimizers, scaler, torch.bfloat16)


def _two_keeping_graph(model, x, y, loss_fn, optimizers, scaler, dtype):
    kept = []

    def keep(outputs, targets):
        kept.append(loss_fn(outputs, targets))
        return kept[0]

    two_steps(model, x, y, keep, optimizers, scaler, dtype)
    return kept[0]


EXERCISES = (
    Exercise(
        id="08.leaving",
        title="Which dtype comes out?",
        level=1,
        minutes=5,
        task="""
On a GPU, under `torch.autocast(…, dtype=torch.float16)`; `x` and `w` are **float32** matrices. Which dtype has each of
these six results? Answer with six texts, `"float16"` or `"float32"`. The check runs them.

```python
def six_results(x, w):
    h = x @ w
    return h, h + x, F.gelu(h), h.mean(), h.sum(), h.add_(x)
```
""",
        hints=(
            "Three rules: products go to 16 bits; what sums many terms goes to float32; all else takes what it gets.",
            "One operation with a float16 and a float32 input returns the wider of the two. One that writes in place "
            "cannot change the dtype of the tensor it writes into. And `mean` is on no list.",
        ),
        reference=leaving,
        check_answer=_check_leaving,
        why="The second is the surprise that costs memory: a residual stream that begins in float32 stays in float32, whatever its blocks compute in. "
        "It is one reason why autocast does not halve the activations.",
        diagnoses={
            "six": "Six results, so six names.",
            "no-dtype": "Each name is the name of a dtype.",
            "all-equal": "Autocast decides operation by operation: they are not all the same.",
            "product": "Matrix products are what autocast runs in 16 bits.",
            "residual": "An addition is on no list. Of a float16 and a float32 input, which one is the wider?",
            "activation": "GELU is on no list: it takes what it gets.",
            "mean": "Not every reduction is on the list of those that go to float32. `mean` is not.",
            "sum": "A sum of many terms is on the list of those that go to float32.",
            "in-place": "What is written in place must fit the tensor that is there.",
        },
        wrong={
            "all-equal": ("float16",) * 6,
            "product": _leaving_with(0),
            "residual": _leaving_with(1),
            "activation": _leaving_with(2),
            "mean": _leaving_with(3),
            "sum": _leaving_with(4),
            "in-place": _leaving_with(5),
        },
    ),
    Exercise(
        id="08.without_sigmoid",
        title="Out with the sigmoid, and then?",
        level=2,
        minutes=8,
        task="""
A tutorial trains `nn.Sequential(…, nn.Linear(64, 1), nn.Sigmoid())` with `nn.BCELoss`. Under CUDA's autocast that loss is
refused, and the tutorial, without a word, goes on with `nn.MSELoss`: another training. Write `without_sigmoid(model)`
for a `Sequential` that ends in a sigmoid, and return three things: the **network** that gives logits, made of
the same parameters (the optimiser holds them); the **loss function** that equals `BCELoss` on the old outputs and is
allowed under autocast; and a function **decide**, which maps logits to a bool tensor that is True where the old output was
above 0.5.
""",
        hints=(
            "A slice of a `Sequential` is a `Sequential` of the same layers.",
            "There is a loss that has the sigmoid inside. If the network keeps its own, there are two of them.",
            "The sigmoid of which logit is 0.5?",
        ),
        reference=without_sigmoid,
        check_answer=_check_without_sigmoid,
        why="Three lines change together: the last layer, the loss, and the threshold. Who forgets the third measures an "
        "accuracy that is too low, and looks for the fault in the training.",
        diagnoses={
            "three": "Return three things: the network, the loss function, and decide.",
            "sigmoid-stays": "The network still ends in its sigmoid. With a loss that has one inside there would be two.",
            "other-network": "The network's outputs are not the logits of the old model's.",
            "copies": "These are other parameters than the model's. The optimiser would go on training the old ones.",
            "squared": "That is the mean squared error: another loss, and another training.",
            "no-logits": "This loss wants probabilities from 0 to 1. Autocast refuses it, and logits do not fit.",
            "saturates": "For logits far from 0 the loss is wrong: the sigmoid is 0 or 1 there before the logarithm "
            "is taken.",
            "sum": "The loss is the sum over the batch, not the mean.",
            "twice": "Here a sigmoid is applied twice.",
            "other-loss": "The loss is not that of `BCELoss` on the old outputs.",
            "no-decide": "The third thing must be a function of logits.",
            "not-bool": "`decide` must return a tensor of True and False.",
            "old-threshold": "0.5 is the threshold for probabilities. Which logit belongs to it?",
            "turned-round": "Yes and no are exchanged.",
            "other-decision": "The decisions are not those of the old model.",
        },
        wrong={
            "sigmoid-stays": _parts(network=lambda model: model),
            "copies": _parts(network=lambda model: copy.deepcopy(model[:-1])),
            "squared": _parts(loss=nn.MSELoss),
            "no-logits": _parts(loss=nn.BCELoss),
            "saturates": _parts(loss=_sigmoid_then_bce),
            "old-threshold": _parts(decide=lambda logits: logits > 0.5),
            "not-bool": _parts(decide=lambda logits: (logits > 0).float()),
        },
    ),
    Exercise(
        id="08.fit_mixed",
        title="A tutorial's mixed precision, on any device",
        level=2,
        minutes=10,
        task="""
The part of a tutorial that trains in mixed precision:

```python
scaler = torch.cuda.amp.GradScaler()
for inputs, targets in loader:
    with torch.cuda.amp.autocast():
        loss = criterion(model(inputs.to(device)), targets.to(device))
    …
```

On a Mac, on a CPU and on the simulated device `torch.cuda.amp` disables itself, and all of it runs in float32; on CUDA it is
deprecated. Write `fit_mixed(model, batches, optimizer)` with `torch.amp`: one step with cross-entropy for each `(x, y)` of
`batches`, which are on the host, on whatever device the model is. On an accelerator use float16 and a scaler, on a CPU bfloat16,
which needs none. The weights stay float32.
""",
        hints=(
            "`next(model.parameters()).device` says where the model is. Nothing else should decide.",
            "`torch.amp.GradScaler(device.type, enabled=…)`: a disabled scaler lets everything through, so the same "
            "lines serve. Make it once, before the loop.",
        ),
        reference=fit_mixed,
        check_answer=_check_fit_mixed,
        why="Code that names a device in its innermost lines is right on one machine. A scaler that is made anew for each batch, as one "
        "often sees, forgets the scale it has found, and can skip every step.",
        diagnoses={
            "deprecated": "`torch.cuda.amp` is deprecated, and does nothing where there is no CUDA.",
            "still-float32": "The layers computed in float32. For which device was autocast asked?",
            "other-dtype": "The layers computed in another dtype than the task asks for on this device.",
            "half-model": "The weights themselves are in 16 bits now. Leave the model as it is.",
            "no-scaler": "float16 without a scaler: small gradients are lost.",
            "scaler-for-bf16": "bfloat16 has the range of float32 and needs no scaler.",
            "new-scaler": "After an overflow the scale was back at its first value: the scaler was made anew.",
            "steps-on": "One batch's gradients overflowed, and the optimiser made a step with them.",
            "other-weights": "The weights are not those of this training. Are old gradients still there?",
        },
        wrong={
            "deprecated": _fit_with(autocast=_old_autocast),
            "still-float32": _fit_with(
                autocast=lambda d: torch.autocast("cuda" if d.type != "cuda" else "cpu")
            ),
            "other-dtype": _fit_with(dtype_of=lambda d: torch.bfloat16),
            "half-model": _fit_half_model,
            "no-scaler": _fit_with(scales=lambda dtype: False),
            "scaler-for-bf16": _fit_with(scales=lambda dtype: True),
            "new-scaler": _fit_with(each=True),
            "steps-on": _fit_with(bare=True),
            "other-weights": _fit_with(zero=False),
        },
    ),
    Exercise(
        id="08.averaged",
        title="An average that moves",
        level=2,
        minutes=10,
        task="""
Many trainings evaluate with a moving average of the weights. Write `averaged(states, decay)`. `states` gives the model's
`state_dict()` after each step; it is always the same dict of **live** tensors, whose values the training changes, and its weights may be in
16 bits. Return a dict of the same names. It begins with the values of the first state; then with each state
every entry becomes decay · old + (1 - decay) · new. Entries that are whole numbers (counters) have their last value. The
average is in float32.
""",
        hints=(
            "With a decay of 0.999, how large is one update beside the average? Can bfloat16 hold the sum?",
            "A copy that shares memory with the model changes with it. For a tensor that is float32 already, `.float()` makes "
            "no copy.",
            "`old.lerp_(new.float(), 1 - decay)` does the update in place.",
        ),
        reference=averaged,
        check_answer=_check_averaged,
        why="In 16 bits the updates of a slow average are smaller than half a gap between two numbers, and it stays where it began. You would "
        "evaluate the network as it was at the start. (`torch.optim.swa_utils.AveragedModel` keeps its average in the "
        "dtype of the model that you give it.)",
        diagnoses={
            "in-16-bits": "The average itself is to be in float32.",
            "rounds-each": "Each update was rounded to 16 bits, and small ones are lost. Converting at the end does not bring "
            "them back.",
            "alias": "The average shares its memory with the model: it has changed along with it.",
            "swapped": "The two shares are exchanged: the old average counts `decay`.",
            "from-zero": "The average began at zero. It should begin with the first state.",
            "plain-mean": "That is the mean of all states. A moving average forgets.",
            "averages-counter": "A counter has no average: keep its last value, as a whole number.",
            "other-names": "The names must be those of the states.",
            "wrong-average": "The average is another.",
        },
        wrong={
            "in-16-bits": _average_with(first=torch.clone, mix=_rounded_mix),
            **_AVERAGE_TWINS,
            "averages-counter": _average_with(whole=lambda v: False),
        },
    ),
    Exercise(
        id="08.two_steps",
        title="Two optimisers, one scaler",
        level=3,
        minutes=12,
        task="""
A network whose two parts have an optimiser each (a GAN's, or an embedding's beside the rest). Write
`two_steps(model, x, y, loss_fn, optimizers, scaler, dtype)`: one training step in mixed precision, from one
loss, with **all** of `optimizers`, which together hold all parameters. Where the gradients of one part overflow, only that part's step is
left out. Gradients of an earlier step may still be there. Return the loss as a tensor, unscaled and without its graph.
""",
        hints=(
            "Which of `scale`, `step` and `update` belongs to the loss, which to an optimiser, and which to the scaler?",
            "All gradients of one backward pass have the same scale. So until when must the scale stay as it is?",
            "Zero both, one scaled backward, `scaler.step` for each, and one `scaler.update()`.",
        ),
        reference=two_steps,
        check_answer=_check_two_steps,
        why="`scaler.step` keeps its books by optimiser, so one part can skip and the other go on. `update()` closes the books of all of them: "
        "after it, a gradient that is still scaled would be divided by another scale.",
        diagnoses={
            "update-each": "The scaler was updated between the two steps. The second one's gradients still had the old "
            "scale.",
            "skips-both": "One part overflowed, and both steps were left out.",
            "bare-step": "One of the optimisers stepped by itself, gradients that overflowed included.",
            "not-scaled": "The backward pass went without the scale.",
            "piles-up": "Gradients of an earlier step are in one of the parts.",
            "piles-up-both": "Gradients of an earlier step are still there.",
            "no-update": "The scaler was never told that the step is over.",
            "refused": "The scaler refused a call: the order is not the one it needs.",
            "no-autocast": "The layers did not compute in the dtype that was asked for.",
            "keeps-graph": "The loss still has its graph, and with it the activations.",
            "scaled-loss": "That is not the loss as `loss_fn` gave it.",
            "other-step": "Weights or scale are not those of a right step.",
        },
        wrong={
            **_TWO_TWINS,
            "not-scaled": _two_with(scale=False),
            "no-update": _two_with(update=False),
            "no-autocast": _two_in_float32,
            "keeps-graph": _two_keeping_graph,
        },
    ),
)
