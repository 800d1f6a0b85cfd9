"""Exercises of lesson 07, profiling and speed.

The six loops of the detective run on a simulated device of their own; the learner's devices and tensors
are left alone.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from time import perf_counter
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from .. import detective, memory, simgpu
from ..detective import Run
from ..profiling import Facts
from ..show import seconds
from ..simgpu.counters import Counters
from .core import Exercise, Judge

# event_seconds -----------------------------------------------------------------------------------


def event_seconds(work, device, repeats):
    work()
    if device.type == "cpu":
        begin = perf_counter()
        for _ in range(repeats):
            work()
        return (perf_counter() - begin) / repeats
    module = torch.get_device_module(device)
    start, end = module.Event(enable_timing=True), module.Event(enable_timing=True)
    start.record()
    for _ in range(repeats):
        work()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) / 1000 / repeats


class _Work:
    """Work whose first call takes longer; it knows how long its calls took."""

    def __init__(self, device: torch.device, seconds: float) -> None:
        self.device, self.seconds, self.cold = device, seconds, 12 * seconds
        self.took: list[float] = []
        self.counters = Counters()
        self.waits: list[int] = []  # how often the host had waited before each call
        self.real: list[float] = []  # what each call took of real time on the simulated device

    def __call__(self) -> None:
        duration = self.seconds if self.took else self.cold
        begin = perf_counter()
        if self.device.type == "sim":
            self.waits.append(self.counters.synchronizations)
            for _ in range(4):
                simgpu.clock(self.device).launch("work", duration / 4)
            self.took.append(duration)
            self.real.append(perf_counter() - begin)
            return
        while perf_counter() < begin + duration:
            pass
        self.took.append(perf_counter() - begin)

    def answers(self, repeats: int) -> dict[str, float]:
        """What the calls give: the right mean under no name, and the wrong ones by diagnosis."""
        right = sum(self.took[-repeats:]) / repeats
        return {
            "": right,
            "milliseconds": 1e3 * right,
            "microseconds": 1e6 * right,
            "divided-twice": 1e-3 * right,
            "all-calls": repeats * right,
            "cold": sum(self.took) / repeats,
        }


def _check_event_seconds(answer: Callable[..., Any], judge: Judge) -> None:
    if simgpu.problem():
        print("Judged on the CPU alone: the simulated device, which has events, is not there.")
    else:
        for length, repeats in ((1e-3, 3), (4e-4, 7), (2e-3, 1)):
            with memory.spare_device("1 GB") as device:
                work = _Work(device, length)
                begin = perf_counter()
                with simgpu.count() as work.counters:
                    got = judge.number(answer(work, device, repeats))
                _judge_time(got, work, repeats, judge, perf_counter() - begin)
    cpu = torch.device("cpu")
    try:
        answer.__wrapped__(_Work(cpu, 1e-5), cpu, 1)
    except (TypeError, AttributeError) as error:
        if "Event" in str(error):
            judge.no("no-branch", seen=f"{error}, on cpu", expected="perf_counter() there")
    except Exception:  # noqa: BLE001  (the next call tells the learner)
        pass
    for _ in range(3):  # another program may take the CPU away for a moment
        work = _Work(cpu, 1e-3)
        got = judge.number(answer(work, cpu, 5))
        if _is_near(got, work.answers(5)[""], cpu):
            return
    _judge_time(got, work, 5, judge)


def _judge_time(got: float, work: _Work, repeats: int, judge: Judge, real: float = 0.0) -> None:
    """Judge what was timed; ``real`` is the real time that went by on the simulated device."""
    if len(work.took) < repeats + 1:
        judge.no(
            "no-warm-up" if len(work.took) == repeats else "other-calls",
            seen=f"{len(work.took)} calls",
            expected=f"one to warm up, and {repeats} that are timed",
        )
    answers = work.answers(repeats)
    right = answers.pop("")
    if _is_near(got, right, work.device):
        between = work.waits[-1] - work.waits[-repeats] if work.waits else 0
        if between:
            judge.no(
                "waits-between",
                seen=f"{between} waits between the first and the last of {repeats} repeats",
                expected="one wait, after the last",
            )
        return
    like = [name for name, value in answers.items() if _is_near(got, value, work.device)]
    waited = bool(work.waits) and work.counters.synchronizations > work.waits[-1]
    if not like and waited and sum(work.real[-repeats:]) <= repeats * got <= real:
        like = ["host-clock"]
    elif not like and got < 0.5 * right and work.device.type != "cpu":
        like = ["only-launches"]
    judge.no(
        like[0] if like else "wrong-value",
        seen=f"{got:.3g} s on {work.device.type}",
        expected=f"{right:.3g} s",
    )


def _is_near(got: float, right: float, device: torch.device) -> bool:
    if device.type == "sim":  # its clock is exact: events can hold a wait for a launch, and no less
        return right * (1 - 1e-6) <= got <= right * 1.025
    return math.isclose(got, right, rel_tol=0.25)


def _events_in_ms(work, device, repeats):
    return 1e3 * event_seconds(work, device, repeats)


def _events_divided_on_the_cpu(work, device, repeats):
    found = event_seconds(work, device, repeats)
    return found / 1000 if device.type == "cpu" else found


def _events_of_all(work, device, repeats):
    return repeats * event_seconds(work, device, repeats)


def _events_cold(work, device, repeats):
    return event_seconds(_later(work), device, repeats)


def _events_around_all(work, device, repeats):
    def together():
        for _ in range(repeats + 1):
            work()

    return event_seconds(_later(together), device, 1) / repeats


def _later(work):
    """Skip the first call."""
    calls = []

    def skipping():
        calls.append(1)
        if len(calls) > 1:
            work()

    return skipping


def _events_of_launches(work, device, repeats):
    work()
    torch.accelerator.synchronize()
    clock = simgpu.clock(device) if device.type == "sim" else None
    begin = clock.host if clock else perf_counter()
    for _ in range(repeats):
        work()
    return ((clock.host if clock else perf_counter()) - begin) / repeats


def _events_by_perf_counter(work, device, repeats):
    wait = (lambda: None) if device.type == "cpu" else torch.accelerator.synchronize
    work()
    wait()
    begin = perf_counter()
    for _ in range(repeats):
        work()
    wait()
    return (perf_counter() - begin) / repeats


def _events_with_waits(work, device, repeats):
    work()
    return sum(event_seconds(_later(work), device, 1) for _ in range(repeats)) / repeats


def _events_without_branch(work, device, repeats):
    module = torch.get_device_module(device)
    start, end = module.Event(enable_timing=True), module.Event(enable_timing=True)
    work()
    start.record()
    for _ in range(repeats):
        work()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) / 1000 / repeats


# mfu ---------------------------------------------------------------------------------------------


def mfu(flops_per_step, seconds_per_step, peak):
    share = flops_per_step / (seconds_per_step * peak)
    if share > 1:
        raise ValueError(f"{share:.2f} of the peak: one of the three numbers is wrong")
    return share


_MFU_TWINS: Mapping[str, Callable[[float, float, float], float]] = {
    "inverted": lambda flops, time, peak: time * peak / flops,
    "percent": lambda flops, time, peak: 100 * flops / time / peak,
    "no-time": lambda flops, time, peak: flops / peak,
    "rate": lambda flops, time, peak: flops / time,
}


def _check_mfu(answer: Callable[..., Any], judge: Judge) -> None:
    for case in ((8.1e11, 0.5, 8.1e12), (3e9, 1e-3, 6.5e13), (120, 3, 160), (5e12, 0.5, 1e13)):
        right = mfu(*case)
        where = f"for {case[0]:.3g} FLOP in {case[1]:g} s, peak {case[2]:.3g} FLOP/s"
        try:
            answer.__wrapped__(*case)
        except (ValueError, AssertionError) as error:
            judge.no("refused", seen=f"{type(error).__name__} {where}", expected=f"{right:.6g}")
        got = judge.number(answer(*case))
        if not math.isclose(got, right, rel_tol=1e-6):
            twins = {name: twin(*case) for name, twin in _MFU_TWINS.items()}
            like = [name for name, value in twins.items() if math.isclose(got, value)]
            judge.no(
                like[0] if like else "wrong-value",
                seen=f"{got:.6g} {where}",
                expected=f"{right:.6g}",
            )
    try:
        got = answer.__wrapped__(2e13, 0.5, 3e13)
    except ValueError as error:
        if not str(error).strip():
            judge.no("no-words", seen="ValueError without a word", expected="what is wrong")
        return
    except AssertionError as error:
        judge.no("asserted", seen=f"AssertionError: {error}", expected="ValueError")
    judge.no("above-one", seen=f"{got} for 4e13 FLOP/s on a device of 3e13", expected="ValueError")


def _mfu_inverted(flops_per_step, seconds_per_step, peak):
    return seconds_per_step * peak / flops_per_step


def _mfu_percent(flops_per_step, seconds_per_step, peak):
    return 100 * flops_per_step / seconds_per_step / peak


def _mfu_without_time(flops_per_step, seconds_per_step, peak):
    return flops_per_step / peak


def _mfu_unbounded(flops_per_step, seconds_per_step, peak):
    return flops_per_step / seconds_per_step / peak


def _mfu_below_one(flops_per_step, seconds_per_step, peak):
    share = flops_per_step / seconds_per_step / peak
    if share >= 1:
        raise ValueError("above the peak")
    return share


def _mfu_asserted(flops_per_step, seconds_per_step, peak):
    share = flops_per_step / seconds_per_step / peak
    assert share <= 1, "above the peak"
    return share


def _mfu_without_words(flops_per_step, seconds_per_step, peak):
    share = flops_per_step / seconds_per_step / peak
    if share > 1:
        raise ValueError
    return share


# regime ------------------------------------------------------------------------------------------


def regime(facts):
    if facts.busy >= 0.75:
        return "compute" if facts.flop_share >= facts.byte_share else "memory"
    if max(facts.loading, facts.waiting) < 0.2:
        return "launch"
    return "loader" if facts.loading >= facts.waiting else "synchronisation"


REGIMES = ("loader", "synchronisation", "launch", "memory", "compute")


def _facts(
    busy: float, loading: float, waiting: float, flop_share: float, byte_share: float
) -> Facts:
    return Facts(
        seconds=1e-3,
        busy=busy,
        loading=loading,
        waiting=waiting,
        flop_share=flop_share,
        byte_share=byte_share,
        kernels=40,
        kernel_seconds=busy * 1e-3 / 40,
    )


def _regime_cases() -> list[Facts]:
    shares = ((0.7, 0.3), (0.2, 0.6), (0.4, 0.4), (0.1, 0.3), (0.8, 0.9), (0.3, 0.1), (0.9, 0.8))
    host = ((0.0, 0.0), (0.5, 0.1), (0.1, 0.4), (0.3, 0.3), (0.2, 0.05), (0.05, 0.2), (0.15, 0.15))
    host += ((0.3, 0.5), (0.5, 0.3))
    busy = (0.1, 0.5, 0.74, 0.75, 0.95, 1.0)
    cases = [_facts(b, *h, *s) for b, h, s in product(busy, host, shares)]
    cases += [_facts(b, *h, 0.02, 0.01) for b, h in product(busy, host) if b < 0.75]
    return [*cases, _facts(0.8, 0.0, 0.9, 0.5, 0.2), _facts(0.99, 0.85, 0.05, 0.1, 0.8)]


def _check_regime(answer: Callable[..., Any], judge: Judge) -> None:
    cases = _regime_cases()
    got = [answer(case) for case in cases]
    for case, name in zip(cases, got, strict=True):
        judge.is_a(name, str, "one of the five names")
        if name not in REGIMES:
            judge.no("other-name", seen=repr(name), expected=", ".join(REGIMES))
        right = regime(case)
        if name != right:
            twins = [twin for twin, f in _REGIME_TWINS.items() if got == [f(c) for c in cases]]
            inside = all(g == regime(c) for c, g in zip(cases, got, strict=True) if not _on_edge(c))
            why = "at-least" if inside else _why_regime(name, right)
            judge.no(
                twins[0] if twins else why,
                seen=f"{name} for busy {case.busy:g}, loading {case.loading:g}, waiting "
                f"{case.waiting:g}, FLOP/s {case.flop_share:g}, bytes/s {case.byte_share:g}",
                expected=right,
            )


def _on_edge(case: Facts) -> bool:
    return case.busy == 0.75 or max(case.loading, case.waiting) == 0.2


def _why_regime(name: str, right: str) -> str:
    if {name, right} == {"compute", "memory"}:
        return "larger-share"
    if right in ("compute", "memory"):
        return "busy-first"
    if name in ("compute", "memory"):
        return "idle-device"
    return "host-side"


def _regime_waits_first(facts):
    if max(facts.loading, facts.waiting) >= 0.2:
        return "loader" if facts.loading >= facts.waiting else "synchronisation"
    if facts.busy >= 0.75:
        return "compute" if facts.flop_share >= facts.byte_share else "memory"
    return "launch"


def _regime_swapped(facts):
    right = regime(facts)
    return {"memory": "compute", "compute": "memory"}.get(right, right)


def _regime_never_idle(facts):
    if facts.flop_share >= 0.3 or facts.byte_share >= 0.3:
        return "compute" if facts.flop_share >= facts.byte_share else "memory"
    return regime(facts)


def _regime_without_launch(facts):
    if facts.busy < 0.75:
        return "loader" if facts.loading >= facts.waiting else "synchronisation"
    return regime(facts)


def _regime_above(facts):
    if facts.busy > 0.75:
        return "compute" if facts.flop_share >= facts.byte_share else "memory"
    if max(facts.loading, facts.waiting) <= 0.2:
        return "launch"
    return "loader" if facts.loading >= facts.waiting else "synchronisation"


_REGIME_TWINS: Mapping[str, Callable[[Facts], str]] = {
    "busy-first": _regime_waits_first,
    "larger-share": _regime_swapped,
    "idle-device": _regime_never_idle,
    "no-launch": _regime_without_launch,
}


# The detective -----------------------------------------------------------------------------------

SLACK = {"a": 0.7, "b": 0.7}
"""Which share of what the reference gains an answer may leave lying; 0.3 for the others. The waits of loop a
and the copies of loop b are counted, so the time need only show that the mend costs less than they did."""


def _without_sim(letter: str, answer: Callable[..., Any], judge: Judge) -> bool:
    """Judge what can be judged where there is no simulated device; return whether that was all."""
    if not simgpu.problem():
        return False
    print("Judged without the simulated device: the result, not the time.")
    _judge_result(letter, detective.run_on_cpu(letter, answer), judge)
    return True


@functools.cache
def _right(letter: str, values: bool = True) -> Run:
    return detective.run(letter, globals()[f"mend_{letter}"], values=values, facts=False)


@functools.cache
def _faulty(letter: str) -> Run:
    return detective.run(letter, facts=False)


@functools.cache
def _on_cpu(letter: str) -> Run:
    return detective.run_on_cpu(letter, globals()[f"mend_{letter}"])


def _limit(letter: str) -> float:
    """Return the modelled seconds that an answer may take."""
    best = _right(letter, values=False).seconds
    return best + SLACK.get(letter, 0.3) * (_faulty(letter).seconds - best)


_TOLERANCE = {"e": 0.05}


def _judge_result(letter: str, got: Run, judge: Judge, twins: Mapping[str, Any] = {}) -> None:
    """Compare what was returned, and the weights, with those of the faulty loop."""
    right = _on_cpu(letter) if simgpu.problem() else _right(letter)
    tolerance = _TOLERANCE.get(letter, 1e-3)
    values = got.result if isinstance(got.result, (list, tuple)) else [got.result]
    if any(isinstance(value, Tensor) for value in values):
        judge.no("tensors", seen="tensors in the place of numbers", expected="Python numbers")
    judge.is_a(got.result, list, "a list of Python numbers")
    if len(values) != len(right.result):
        judge.no(
            "other-length", seen=f"{len(values)} numbers", expected=f"{len(right.result)} numbers"
        )
    numbers = [judge.number(value) for value in values]
    off = _off(got.moved, right.moved)
    if not _close(numbers, right.result, tolerance):
        like = [name for name, twin in twins.items() if _close(numbers, twin(right), 1e-3)]
        judge.no(
            like[0] if like else "other-result" if off > tolerance else "other-numbers",
            seen=_short(numbers),
            expected=_short(right.result),
        )
    for dtype in {*got.dtypes, *(w.dtype for w in got.weights)} - {torch.float32}:
        judge.no("weights-dtype", seen=f"weights in {dtype}", expected="float32 in every step")
    if off > tolerance:
        judge.no(
            "other-weights",
            seen=f"weights whose change is {off:.1%} off",
            expected="those of the given loop",
        )


def _close(got: Sequence[float], right: Sequence[float], tolerance: float) -> bool:
    return len(got) == len(right) and all(
        math.isclose(a, b, rel_tol=tolerance, abs_tol=1e-6) for a, b in zip(got, right, strict=True)
    )


def _off(got: Sequence[Tensor], right: Sequence[Tensor]) -> float:
    far = sum(
        float((g.double() - r.double()).square().sum()) for g, r in zip(got, right, strict=True)
    )
    return math.sqrt(far / sum(float(r.double().square().sum()) for r in right))


def _short(numbers: Sequence[float]) -> str:
    return "[" + ", ".join(f"{number:.4g}" for number in numbers[:6]) + "]"


def _times(letter: str, got: Run) -> dict[str, str]:
    return {
        "seen": f"{seconds(got.seconds)} (modelled); the given loop takes {seconds(_faulty(letter).seconds)}",
        "expected": f"at most {seconds(_limit(letter))}",
    }


# --- a


def mend_a(model, batches, optimizer):
    norms = []
    for x, y in batches:
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        norms.append(torch.stack([p.grad.norm() for p in model.parameters()]).norm())
        optimizer.step()
    return torch.stack(norms).tolist()


def _check_a(answer: Callable[..., Any], judge: Judge) -> None:
    if _without_sim("a", answer, judge):
        return
    got = detective.run("a", answer, facts=False)
    early = any(copy.non_blocking for copy in got.counters.copies)
    if early and not got.counters.synchronizations:
        judge.no("too-early", seen="a copy that nobody waited for", expected="a wait at the end")
    twins = {name: functools.partial(_twin_of, "a", twin) for name, twin in _A_TWINS.items()}
    _judge_result("a", got, judge, twins)
    steps = len(got.steps)
    waits = got.steps[-1].synchronizations if steps else 0
    if waits > 1:
        judge.no(
            "each-parameter" if waits >= 2 * steps else "each-step",
            seen=f"the host waited {waits} times before the last of {steps} steps was made",
            expected="no wait before the steps are made",
        )
    if got.seconds > _limit("a"):
        judge.no("slow", **_times("a", got))


def _judge_waits(got: Run, judge: Judge, own: int = 0) -> None:
    """Refuse a wait in each step, which loops b to e do not have; ``own`` are no fault of the answer's.

    The first step or the last may do without: its number is asked for before or after it is made.
    """
    steps = len(got.steps)
    waits = got.steps[-1].waits - own if steps else 0
    if waits >= max(2, steps - 1):
        judge.no(
            "waits-each-step",
            seen=f"the host waited {waits} times before the last of {steps} steps was made",
            expected="no wait before the steps are made",
        )


@functools.cache
def _twin_result(letter: str, twin: Callable[..., Any]) -> list[float]:
    return detective.run(letter, twin, values=True, facts=False).result


def _twin_of(letter: str, twin: Callable[..., Any], right: Run) -> list[float]:
    return _twin_result(letter, twin)


def _a_sums(model, batches, optimizer):
    norms = []
    for x, y in batches:
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        norms.append(torch.stack([p.grad.norm() for p in model.parameters()]).sum())
        optimizer.step()
    return torch.stack(norms).tolist()


def _a_clipped(model, batches, optimizer):
    norms = []
    for x, y in batches:
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0))
        optimizer.step()
    return torch.stack(norms).tolist()


_A_TWINS = {"sum-of-norms": _a_sums, "clipped": _a_clipped}


def _a_each_step(model, batches, optimizer):
    norms = []
    for x, y in batches:
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        norms.append(torch.stack([p.grad.norm() for p in model.parameters()]).norm().item())
        optimizer.step()
    return norms


def _a_cpu(model, batches, optimizer):
    norms = []
    for x, y in batches:
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        norms.append(torch.stack([p.grad.norm().cpu() for p in model.parameters()]).norm())
        optimizer.step()
    return torch.stack(norms).tolist()


def _a_tensors(model, batches, optimizer):
    norms = []
    for x, y in batches:
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        norms.append(torch.stack([p.grad.norm() for p in model.parameters()]).norm())
        optimizer.step()
    return norms


def _a_too_early(model, batches, optimizer):
    norms = []
    for x, y in batches:
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        norms.append(torch.stack([p.grad.norm() for p in model.parameters()]).norm())
        optimizer.step()
    return torch.stack(norms).to("cpu", non_blocking=True).tolist()


def _a_without_norms(model, batches, optimizer):
    for x, y in batches:
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return []


# --- b


def mend_b(model, images, labels, order, optimizer, device):
    losses = []
    for rows in order:
        x, y = images[rows].to(device), labels[rows].to(device)
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return torch.stack(losses).tolist()


def _check_b(answer: Callable[..., Any], judge: Judge) -> None:
    if _without_sim("b", answer, judge):
        return
    got = detective.run("b", answer, facts=False)
    _judge_result("b", got, judge, {"other-rows": functools.partial(_twin_of, "b", _b_in_order)})
    sent = [copy for copy in got.counters.copies if copy.code == "h2d"]
    small = [copy for copy in sent if copy.bytes <= 8]
    most = 8 * len(got.steps)
    seen = {
        "seen": f"{len(sent)} copies to the device, {sum(copy.bytes for copy in sent):,} bytes",
        "expected": f"two copies a step and {_B_BYTES:,} bytes, or fewer",
    }
    if len(small) > most >= len(sent) - len(small):
        judge.no("labels-too", **seen)
    if len(sent) > most:
        judge.no("as-many" if any(copy.non_blocking for copy in sent) else "each-sample", **seen)
    if sum(copy.bytes for copy in sent) > 2 * _B_BYTES:
        judge.no("all-each-step", **seen)
    if got.seconds > _limit("b"):
        judge.no("slow", **_times("b", got))
    _judge_waits(got, judge)


_B_BYTES = detective.ROWS_B * (4 * detective.WIDTH_B + 8)


def _b_step(model, x, y, optimizer):
    loss = F.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.detach()


def _b_in_order(model, images, labels, order, optimizer, device):
    losses, first = [], 0
    for rows in order:
        part = slice(first, first + len(rows))
        x, y = images[part].to(device), labels[part].to(device)
        losses.append(_b_step(model, x, y, optimizer))
        first += len(rows)
    return torch.stack(losses).tolist()


def _b_pinned(model, images, labels, order, optimizer, device):
    losses = []
    images, labels = images.pin_memory(), labels.pin_memory()
    for rows in order:
        x = torch.stack([images[i].to(device, non_blocking=True) for i in rows])
        y = torch.stack([labels[i].to(device, non_blocking=True) for i in rows])
        losses.append(_b_step(model, x, y, optimizer))
    return torch.stack(losses).tolist()


def _b_labels_one_by_one(model, images, labels, order, optimizer, device):
    losses = []
    for rows in order:
        x = images[rows].to(device)
        y = torch.stack([labels[i].to(device) for i in rows])
        losses.append(_b_step(model, x, y, optimizer))
    return torch.stack(losses).tolist()


def _b_by_item(model, images, labels, order, optimizer, device):
    losses = []
    for rows in order:
        x, y = images[rows].to(device), labels[rows].to(device)
        losses.append(_b_step(model, x, y, optimizer).item())
    return losses


def _b_all_each_step(model, images, labels, order, optimizer, device):
    losses = []
    for rows in order:
        x, y = images.to(device)[rows], labels.to(device)[rows]
        losses.append(_b_step(model, x, y, optimizer))
    return torch.stack(losses).tolist()


# --- c


def mend_c(model, make_loader, epochs, optimizer, device):
    losses = []
    loader = make_loader(num_workers=4, persistent_workers=True)
    for _ in range(epochs):
        for x, y in loader:
            loss = F.cross_entropy(model(x.to(device)), y.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
    return torch.stack(losses).tolist()


def _check_c(answer: Callable[..., Any], judge: Judge) -> None:
    if _without_sim("c", answer, judge):
        return
    got = detective.run("c", answer, facts=False)
    _judge_result("c", got, judge, {"other-batches": lambda right: right.result[:8] * 3})
    if got.seconds <= _limit("c"):
        _judge_waits(got, judge)
        return
    names = [span.name for span in got.timeline.spans if span.lane == "host"]
    first = got.steps[0].host if got.steps else math.inf
    loads = [s for s in got.timeline.spans if s.name == "load a batch" and s.end < first]
    starts = [s.seconds for s in got.timeline.spans if s.name == "start the workers"]
    if len(loads) > 8:
        judge.no("loads-first", **_times("c", got))
    if len(starts) > 1:
        judge.no("workers-restart", **_times("c", got))
    if not starts:
        pinned = "pin_memory" in names or any(c.non_blocking for c in got.counters.copies)
        judge.no("only-copies" if pinned else "in-line", **_times("c", got))
    many = starts[0] > detective.Loader.CORES * detective.Loader.START
    judge.no("too-many-workers" if many else "too-few-workers", **_times("c", got))


def _c_with(**options: Any) -> Callable[..., Any]:
    def mend_c(model, make_loader, epochs, optimizer, device):
        losses = []
        loader = make_loader(**options)
        for _ in range(epochs):
            for x, y in loader:
                x, y = x.to(device, non_blocking=True), y.to(device, non_blocking=True)
                losses.append(_b_step(model, x, y, optimizer))
        return torch.stack(losses).tolist()

    return mend_c


def _c_by_item(model, make_loader, epochs, optimizer, device):
    losses = []
    loader = make_loader(num_workers=4, persistent_workers=True)
    for _ in range(epochs):
        for x, y in loader:
            losses.append(_b_step(model, x.to(device), y.to(device), optimizer).item())
    return losses


def _c_loads_first(model, make_loader, epochs, optimizer, device):
    losses = []
    batches = [batch for _ in range(epochs) for batch in make_loader()]
    for x, y in batches:
        losses.append(_b_step(model, x.to(device), y.to(device), optimizer))
    return torch.stack(losses).tolist()


def _c_one_epoch(model, make_loader, epochs, optimizer, device):
    losses = []
    for x, y in make_loader(num_workers=4):
        losses.append(_b_step(model, x.to(device), y.to(device), optimizer))
    return torch.stack(losses).tolist()


# --- d


def mend_d(model, batches, optimizer):
    losses = []
    for x, y, weights in batches:
        each = F.cross_entropy(model(x), y, reduction="none")
        loss = (weights * each).sum() / weights.sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return torch.stack(losses).tolist()


def _check_d(answer: Callable[..., Any], judge: Judge) -> None:
    if _without_sim("d", answer, judge):
        return
    got = detective.run("d", answer, facts=False)
    twins = {name: functools.partial(_twin_of, "d", twin) for name, twin in _D_TWINS.items()}
    _judge_result("d", got, judge, twins)
    if got.seconds > _limit("d"):
        faulty, launches = _faulty("d").counters.launches, got.counters.launches
        waits = got.steps[-1].synchronizations if got.steps else 0
        seen = {"seen": f"{launches} kernels; {_times('d', got)['seen']}"}
        expected = f"about {_right('d').counters.launches} kernels; {_times('d', got)['expected']}"
        if waits > len(got.steps):
            judge.no("waits", **seen, expected=expected)
        judge.no(
            "each-sample" if launches > 0.6 * faulty else "small-pieces", **seen, expected=expected
        )
    _judge_waits(got, judge)


def _d_with(loss_of: Callable[[Any, Tensor, Tensor, Tensor], Tensor]) -> Callable[..., Any]:
    def mend_d(model, batches, optimizer):
        losses = []
        for x, y, weights in batches:
            loss = loss_of(model, x, y, weights)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        return torch.stack(losses).tolist()

    return mend_d


def _each(model: Any, x: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(model(x), y, reduction="none")


_d_unweighted = _d_with(lambda model, x, y, w: F.cross_entropy(model(x), y))
_d_mean = _d_with(lambda model, x, y, w: (w * _each(model, x, y)).mean())
_d_each_model = _d_with(
    lambda model, x, y, w: (
        (w * F.cross_entropy(torch.stack([model(row) for row in x]), y, reduction="none")).sum()
        / w.sum()
    )
)
_d_pieces = _d_with(
    lambda model, x, y, w: (
        sum(
            (wp * _each(model, xp, yp)).sum()
            for xp, yp, wp in zip(x.split(2), y.split(2), w.split(2), strict=True)
        )
        / w.sum()
    )
)


def _d_by_item(model, batches, optimizer):
    losses = []
    for x, y, weights in batches:
        loss = (weights * _each(model, x, y)).sum() / weights.sum()
        losses.append(loss.item())
        _stepped(loss, optimizer)
    return losses


_D_TWINS = {"unweighted": _d_unweighted, "divided-by-count": _d_mean}


# --- e


def mend_e(model, batches, optimizer):
    losses = []
    for x, y in batches:
        with torch.autocast(x.device.type, torch.bfloat16):
            loss = F.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return torch.stack(losses).tolist()


def _check_e(answer: Callable[..., Any], judge: Judge) -> None:
    if _without_sim("e", answer, judge):
        return
    small = detective.run("e", answer, values=True, facts=False)
    _judge_result("e", small, judge)
    got = detective.run("e", answer, facts=False)
    if got.seconds > _limit("e"):
        same = got.seconds > 0.85 * _faulty("e").seconds
        judge.no("as-slow" if same else "only-some", **_times("e", got))
    kernels = (span.name for span in small.timeline.spans if span.kind == "kernel")
    scaled = sum("non_finite_check" in name for name in kernels)
    _judge_waits(small, judge, own=scaled)  # a GradScaler asks once a step


def _e_loss_only(model, batches, optimizer):
    losses = []
    for x, y in batches:
        output = model(x)
        with torch.autocast(x.device.type, torch.bfloat16):
            loss = F.mse_loss(output, y)
        losses.append(_stepped(loss, optimizer))
    return torch.stack(losses).tolist()


def _stepped(loss, optimizer):
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.detach()


def _e_by_item(model, batches, optimizer):
    losses = []
    for x, y in batches:
        with torch.autocast(x.device.type, torch.bfloat16):
            loss = F.mse_loss(model(x), y)
        losses.append(_stepped(loss, optimizer).item())
    return losses


def _e_one_layer(model, batches, optimizer):
    losses = []
    for x, y in batches:
        with torch.autocast(x.device.type, torch.bfloat16):
            first = model[0](x)
        losses.append(_stepped(F.mse_loss(model[1:](first.float()), y), optimizer))
    return torch.stack(losses).tolist()


def _e_weights_in_16_bits(model, batches, optimizer):
    model.to(torch.bfloat16)
    losses = []
    for x, y in batches:
        loss = F.mse_loss(model(x.to(torch.bfloat16)), y.to(torch.bfloat16))
        losses.append(_stepped(loss, optimizer).float())
    return torch.stack(losses).tolist()


def _e_without_steps(model, batches, optimizer):
    with torch.autocast(batches[0][0].device.type, torch.bfloat16):
        return [F.mse_loss(model(x), y).item() for x, y in batches]


def _e_half_the_rows(model, batches, optimizer):
    return mend_e(model, [(x[::4], y[::4]) for x, y in batches], optimizer)


# --- f


def mend_f(model, batches, optimizer):
    accuracies, hits, seen = [], 0, 0
    for x, y in batches:
        output = model(x)
        loss = F.cross_entropy(output, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        hits += (output.argmax(1) == y).sum()
        seen += len(y)
        accuracies.append(hits / seen)
    return torch.stack(accuracies).tolist()


def _check_f(answer: Callable[..., Any], judge: Judge) -> None:
    if _without_sim("f", answer, judge):
        return
    small = detective.run("f", answer, values=True, facts=False)
    twins = {name: functools.partial(_twin_of, "f", twin) for name, twin in _F_TWINS.items()}
    _judge_result("f", small, judge, twins)
    waits = small.steps[-1].synchronizations if small.steps else 0
    if waits > 2:
        judge.no(
            "waits-each-step",
            seen=f"the host waited {waits} times before the last of {len(small.steps)} steps was made",
            expected="no wait before the steps are made",
        )
    got = detective.run("f", answer, facts=False)
    each = got.step_bytes
    if got.seconds <= _limit("f") and len(each) > 2 and each[-1] - each[1] > detective.ROWS_F:
        judge.no(
            "still-grows",
            seen=f"{each[1]:,.0f} bytes read and written in the second step, {each[-1]:,.0f} in the last",
            expected="as many in each step",
        )
    if got.seconds > _limit("f"):
        late = got.rest_seconds > 0.25 * got.seconds
        judge.no("moved-to-the-end" if late else "still-grows", **_times("f", got))


def _f_with(accuracies_of: Callable[[list[Tensor], list[Tensor]], Any]) -> Callable[..., Any]:
    """Train, keep all outputs, and make the accuracies of them at the end."""

    def mend_f(model, batches, optimizer):
        outputs, labels = [], []
        for x, y in batches:
            output = model(x)
            _stepped(F.cross_entropy(output, y), optimizer)
            outputs.append(output.detach())
            labels.append(y)
        return accuracies_of(outputs, labels)

    return mend_f


def _accuracy(output: Tensor, y: Tensor) -> Tensor:
    return (output.argmax(1) == y).float().mean()


def _prefixes(outputs: list[Tensor], labels: list[Tensor]) -> list[float]:
    found = [
        _accuracy(torch.cat(outputs[: i + 1]), torch.cat(labels[: i + 1]))
        for i in range(len(outputs))
    ]
    return torch.stack(found).tolist()


def _means_of_means(outputs: list[Tensor], labels: list[Tensor]) -> list[float]:
    each = torch.stack([_accuracy(o, y) for o, y in zip(outputs, labels, strict=True)])
    return (each.cumsum(0) / torch.arange(1, len(each) + 1, device=each.device)).tolist()


_f_per_batch = _f_with(
    lambda outputs, labels: torch.stack(
        [_accuracy(o, y) for o, y in zip(outputs, labels, strict=True)]
    ).tolist()
)
_f_mean_of_means = _f_with(_means_of_means)
_f_at_the_end = _f_with(_prefixes)
_f_last_only = _f_with(lambda o, y: [_accuracy(torch.cat(o), torch.cat(y)).item()])


def _f_aliased(model, batches, optimizer):
    hits = torch.zeros((), device=batches[0][0].device)
    found, seen = [], []
    for x, y in batches:
        output = model(x)
        _stepped(F.cross_entropy(output, y), optimizer)
        hits += (output.argmax(1) == y).sum()
        found.append(hits)
        seen.append(len(y) + sum(seen[-1:]))
    return (torch.stack(found).cpu() / torch.tensor(seen)).tolist()


_F_TWINS = {
    "per-batch": _f_per_batch,
    "mean-of-means": _f_mean_of_means,
    "aliased": _f_aliased,
}


def _f_keeps_hits(model, batches, optimizer):
    accuracies, hits = [], []
    for x, y in batches:
        output = model(x)
        _stepped(F.cross_entropy(output, y), optimizer)
        hits.append(output.argmax(1) == y)
        accuracies.append(torch.cat(hits).float().mean())
    return torch.stack(accuracies).tolist()


def _f_by_item(model, batches, optimizer):
    accuracies, hits, seen = [], 0, 0
    for x, y in batches:
        output = model(x)
        _stepped(F.cross_entropy(output, y), optimizer)
        hits += (output.argmax(1) == y).sum().item()
        seen += len(y)
        accuracies.append(hits / seen)
    return accuracies


def _f_keeps_predictions(model, batches, optimizer):
    accuracies, outputs, labels = [], [], []
    for x, y in batches:
        output = model(x)
        _stepped(F.cross_entropy(output, y), optimizer)
        outputs.append(output.detach())
        labels.append(y)
        accuracies.append(_accuracy(torch.cat(outputs).clone(), torch.cat(labels)))
    return torch.stack(accuracies).tolist()


# The exercises -----------------------------------------------------------------------------------

_RESULT = {
    "tensors": "The list holds tensors. Make Python numbers of them once, when all steps are made.",
    "other-length": "The list has another length than the given loop's.",
    "other-result": "The loop got other numbers than the given one. It shall train in the same way on the same "
    "data, only faster.",
    "other-numbers": "The loop trains as the given one does, and returns other numbers.",
    "weights-dtype": "The weights are not float32, or were not when a step was made. In 16 bits a small step is lost.",
    "other-weights": "The numbers agree and the weights do not: not every step is made as the given loop makes it.",
    "waits-each-step": "The host now waits for the device in every step, as the given loop did not. Keep the numbers on the "
    "device, and read them when all steps are made.",
    "slow": "The result is right and the time is not. Look at the timeline of your loop: who waits for whom?",
}


def _mend(
    letter: str,
    *,
    title: str,
    task: str,
    level: int,
    minutes: int,
    hints: tuple[str, ...],
    why: str,
    diagnoses: Mapping[str, str],
    wrong: Mapping[str, Any],
) -> Exercise:
    """Return the exercise of one of the detective's loops."""
    return Exercise(
        id=f"07.mend_{letter}",
        title=title,
        task=task,
        level=level,
        minutes=minutes,
        hints=hints,
        reference=globals()[f"mend_{letter}"],
        check_answer=globals()[f"_check_{letter}"],
        why=why,
        diagnoses={**_RESULT, **diagnoses},
        wrong=wrong,
        may_change=True,
    )


EXERCISES = (
    Exercise(
        id="07.event_seconds",
        title="A stopwatch inside the queue",
        level=2,
        minutes=10,
        task="""
Write `event_seconds(work, device, repeats)`: the seconds of one call of `work()`, which takes no argument,
averaged over `repeats` calls. The first call of all takes longer, so make one beforehand that is not timed. On a
GPU or the simulated device, time with two events around all the repeats, without a wait between them:
`torch.get_device_module(device).Event(enable_timing=True)`. `device.type == "cpu"` has no queue, and
`torch.cpu.Event` measures nothing: there read `perf_counter()`.
""",
        hints=(
            "An event is a mark in the queue. `start.record()` puts one before the repeats, `end.record()` another "
            "behind them.",
            "The marks have times only when the device has reached them: wait for the second with "
            "`end.synchronize()`.",
            "`start.elapsed_time(end)` is in milliseconds, and it is the time of all repeats.",
        ),
        reference=event_seconds,
        check_answer=_check_event_seconds,
        why="The device itself notes when it passes a mark. So the host need not wait between two calls, and what it "
        "does meanwhile does not disturb the measurement.",
        diagnoses={
            "milliseconds": "That is the time in milliseconds, which `elapsed_time` gives. The task asks for seconds.",
            "microseconds": "That is the time in microseconds. The task asks for seconds.",
            "divided-twice": "That is a thousandth of the time. `elapsed_time` is in milliseconds, `perf_counter()` in seconds.",
            "all-calls": "That is the time of all the repeats. The task asks for one call.",
            "cold": "The first call of all is among those that were timed, and it takes longer than the others.",
            "no-warm-up": "Every call was timed, the first too, which takes longer than the others.",
            "other-calls": "`work` was called less often than `repeats` and one more.",
            "only-launches": "That is how long the host takes to hand the work over. The device was not done yet.",
            "host-clock": "A host clock cannot see the simulated device's modelled time: use its events.",
            "waits-between": "The time is right, and the host waits for the device between the repeats. Two events around "
            "all of them need one wait, at the end.",
            "no-branch": "`torch.cpu.Event` measures nothing. On `cpu`, branch to `perf_counter()`.",
        },
        wrong={
            "milliseconds": _events_in_ms,
            "divided-twice": _events_divided_on_the_cpu,
            "all-calls": _events_of_all,
            "no-warm-up": _events_cold,
            "only-launches": _events_of_launches,
            "cold": _events_around_all,
            "host-clock": _events_by_perf_counter,
            "waits-between": _events_with_waits,
            "no-branch": _events_without_branch,
        },
    ),
    Exercise(
        id="07.regime",
        title="Name the regime",
        level=2,
        minutes=10,
        task="""
Write `regime(facts)`: one of `"loader"`, `"synchronisation"`, `"launch"`, `"memory"`, `"compute"`.
`facts` is what `profiling.facts(work, device)` returns; all its shares are from 0 to 1:

- `facts.busy`: the share of the time in which the device computes.
- `facts.loading`, `facts.waiting`: the shares in which the host loads data, and waits for the device.
- `facts.flop_share`, `facts.byte_share`: while the device computes, its FLOP/s and its bytes/s as a share of the most that
  it reaches.

A device that is busy for at least 0.75 of the time sets the pace itself: the larger of the last two shares names
what limits it, compute where they are equal. Otherwise the host sets the pace. If it loads or waits for at least 0.2
of the time, the longer of the two names the regime, loader where they are equal. If it does neither, it only
launches.
""",
        hints=(
            "A host that waits for a device that is always busy loses nothing. So which question comes first?",
            "First ask for `facts.busy`. The five names then fall into two for a busy device and three for an idle one.",
            'Of the three, ask for `"launch"` first: neither `facts.loading` nor `facts.waiting` reaches 0.2.',
        ),
        reference=regime,
        check_answer=_check_regime,
        why="The order of the questions is the method. A busy device is made faster by less work or by cheaper work, an "
        "idle one by a host that feeds it better, and the wrong one of the two gains nothing. If both shares are low on a "
        "busy device, neither is the limit: the kernels are too small or too slow to fill it. Then go back to larger "
        "kernels, not to 16 bits.",
        diagnoses={
            "other-name": "The answer is none of the five names.",
            "busy-first": "The device is busy here. That the host waits for it, or loads meanwhile, costs nothing.",
            "larger-share": "Where the FLOP/s are nearer to their limit, compute is the limit. Where the bytes/s are, "
            "memory is. Equal shares count as compute.",
            "idle-device": "The device stands idle for a good part of the time here. What it reaches while it computes "
            "does not say why.",
            "at-least": "*At least* includes the number itself: a share of exactly 0.2 or 0.75 belongs to it.",
            "no-launch": "The host neither loads nor waits for long here. It is busy with launching.",
            "host-side": "For an idle device, compare what the host does: both shares with 0.2, then with each other.",
        },
        wrong={
            "busy-first": _regime_waits_first,
            "larger-share": _regime_swapped,
            "idle-device": _regime_never_idle,
            "no-launch": _regime_without_launch,
            "at-least": _regime_above,
        },
    ),
    Exercise(
        id="07.mfu",
        title="Which share of the chip works for you",
        level=1,
        minutes=5,
        task="""
Write `mfu(flops_per_step, seconds_per_step, peak)`: the model FLOPs utilisation, which is the FLOP/s of a
training step as a share of the peak FLOP/s that the maker states. Nothing exceeds a peak: where the share comes out
above 1, one of the numbers is wrong, so raise `ValueError` and say so.
""",
        hints=(
            "Which rate does the step reach? FLOP are work, FLOP/s are work in a time.",
            "The rate is `flops_per_step / seconds_per_step`, and the share is that by `peak`.",
        ),
        reference=mfu,
        check_answer=_check_mfu,
        why="MFU compares a training with what the chip could do, whatever the model and the chip. A share above 1 is "
        "common in practice: often the peak is that of another number format.",
        diagnoses={
            "inverted": "That is the peak by the rate. A share of the peak has the peak below the line.",
            "percent": "That is in percent. The task asks for a share, from 0 to 1.",
            "no-time": "The time of the step is not in it. FLOP are compared with FLOP/s here.",
            "rate": "That is the rate itself. The task asks which share of the peak it is.",
            "above-one": "A rate above the peak got an answer. It cannot be, so refuse it.",
            "refused": "This share can be, and got no answer. Exactly 1 is the peak itself, and does not exceed it.",
            "asserted": "The task asks for a `ValueError`. An `assert` checks your own code, and `python -O` leaves it out.",
            "no-words": "The `ValueError` says nothing. Whoever reads it needs to know what is wrong.",
        },
        wrong={
            "inverted": _mfu_inverted,
            "percent": _mfu_percent,
            "no-time": _mfu_without_time,
            "above-one": _mfu_unbounded,
            "refused": _mfu_below_one,
            "asserted": _mfu_asserted,
            "no-words": _mfu_without_words,
        },
    ),
    _mend(
        "a",
        title="Loop a",
        level=2,
        minutes=10,
        task="""
Write `mend_a(model, batches, optimizer)`, the first loop without its fault. The batches are on the device. It returns
a list of Python numbers: for each step, the norm of the gradient of all parameters together.
""",
        hints=(
            "In the timeline, when does the host wait? Which expression makes a Python number of a tensor?",
            "The norm of the parameters' norms is the norm of the whole gradient, and a tensor can hold it.",
            "Keep one tensor a step in the list, and make Python numbers of all of them after the loop: "
            "`torch.stack(norms).tolist()`.",
        ),
        why="Each `.item()` lets the host wait until the queue is empty, and then the device waits for the host. Kept on "
        "the device, the same numbers cost one wait for the whole loop.",
        diagnoses={
            "each-parameter": "The host still waits several times in every step. Something makes a Python number, or a "
            "CPU tensor, of each parameter's norm.",
            "each-step": "One wait a step is left. That gains most of the time here, and still empties the queue in "
            "every step: read the numbers when all steps are made.",
            "sum-of-norms": "The norms of the parts do not add up to the norm of the whole. Their squares do.",
            "clipped": "The norms are right, and the gradients were clipped to 1 on the way: from the second step on "
            "another model is trained.",
            "too-early": "A copy with non_blocking=True was read before it had arrived.",
        },
        wrong={
            "each-step": _a_each_step,
            "each-parameter": _a_cpu,
            "tensors": _a_tensors,
            "sum-of-norms": _a_sums,
            "clipped": _a_clipped,
            "other-length": _a_without_norms,
            "too-early": _a_too_early,
        },
    ),
    _mend(
        "b",
        title="Loop b",
        level=1,
        minutes=8,
        task="""
Write `mend_b(model, images, labels, order, optimizer, device)`, the second loop without its fault. `images` (one row
an image) and `labels` are on the host and fit on the device. `order` holds one tensor of row numbers a step. It
returns the list of losses.
""",
        hints=(
            "Count the copies to the device in a step. How many must there be?",
            "A tensor can be indexed with a tensor of row numbers: `images[rows]` is a batch.",
            "Pick the rows first and move the batch, or move all images once, before the loop.",
        ),
        why="A copy costs time before its first byte moves: the launch, the way over the bus, the wait. One large copy pays "
        "that once. Data that fits on the device is best moved once for the whole training.",
        diagnoses={
            "each-sample": "Each sample still crosses the bus by itself.",
            "as-many": "Pinned memory and non_blocking make each copy cheaper, and there are as many as before.",
            "labels-too": "The images travel together now. The labels still go one by one, and a small copy costs nearly "
            "as much as a large one.",
            "all-each-step": "Far more bytes travel than before: all the images in every step. Once would do.",
            "other-rows": "These are the losses of the rows as they come. The order of the task is another.",
        },
        wrong={
            "each-sample": detective.loop_b,
            "as-many": _b_pinned,
            "labels-too": _b_labels_one_by_one,
            "all-each-step": _b_all_each_step,
            "waits-each-step": _b_by_item,
            "other-rows": _b_in_order,
        },
    ),
    _mend(
        "c",
        title="Loop c",
        level=2,
        minutes=10,
        task="""
Write `mend_c(model, make_loader, epochs, optimizer, device)`, the third loop without its fault.
`make_loader(num_workers=0, pin_memory=False, persistent_workers=False)` makes a `DataLoader` on the virtual clock: loading a
batch keeps one core of the host busy, there are four cores, and starting a worker takes as long as loading two
batches. Every epoch has the same batches, and they fit on the device. It returns the list of losses.
""",
        hints=(
            "What does the device do while a batch is loaded? Who could load the next one meanwhile?",
            "`num_workers` lets other processes load. How often do they start in your loop, and how often must they?",
            "`persistent_workers=True` keeps the workers from one epoch to the next. The other way is to keep the batches of "
            "the first epoch on the device.",
        ),
        why="Loading beside the training costs only what the device cannot cover. Workers that restart in every epoch can eat "
        "up the gain, and data that is kept on the device needs no loader at all.",
        diagnoses={
            "in-line": "The training process still loads every batch by itself, and the device waits.",
            "only-copies": "Pinned memory makes the copies faster. The copies are not what takes the time here.",
            "loads-first": "All batches are loaded before the first step. That takes as long as before, and more memory.",
            "workers-restart": "The workers start anew in every epoch, and that costs what they gain.",
            "too-few-workers": "A single worker loads no faster than the training process did.",
            "too-many-workers": "There are more workers than cores. They share the cores, and each takes time to start.",
            "other-batches": "These are the losses of the first epoch, over and over.",
        },
        wrong={
            "in-line": detective.loop_c,
            "only-copies": _c_with(pin_memory=True),
            "loads-first": _c_loads_first,
            "workers-restart": _c_with(num_workers=4, pin_memory=True),
            "too-few-workers": _c_with(num_workers=1, persistent_workers=True),
            "too-many-workers": _c_with(num_workers=12, persistent_workers=True),
            "other-length": _c_one_epoch,
            "waits-each-step": _c_by_item,
        },
    ),
    _mend(
        "d",
        title="Loop d",
        level=2,
        minutes=10,
        task="""
Write `mend_d(model, batches, optimizer)`, the fourth loop without its fault. The batches are on the device: inputs,
labels, and a weight for each sample. A step's loss is the weighted mean over its samples. It returns the list of
losses.
""",
        hints=(
            "How many kernels run in a step, and how long is each? What does the host do all the time?",
            "A model takes a whole batch at once. How do you get one loss for each sample from it?",
            '`F.cross_entropy(..., reduction="none")` gives one loss a sample. Their weighted mean is the sum of '
            "weight times loss by the sum of the weights.",
        ),
        why="The device does a batch in about the time of one sample, because launching is what takes the time. A Python loop "
        "over samples, pixels, heads or parameters is nearly always such a case.",
        diagnoses={
            "each-sample": "The model still sees one sample at a time, so there are about as many kernels as before.",
            "small-pieces": "There are fewer kernels than before, and still many times more than one pass for the whole "
            "batch needs.",
            "unweighted": "That is the plain mean. The samples have weights.",
            "divided-by-count": "The weighted losses are divided by how many there are. A weighted mean divides by the sum "
            "of the weights.",
            "waits": "The host now waits for the device in the loop over the samples.",
        },
        wrong={
            "each-sample": _d_each_model,
            "small-pieces": _d_pieces,
            "unweighted": _d_unweighted,
            "divided-by-count": _d_mean,
            "waits-each-step": _d_by_item,
        },
    ),
    _mend(
        "e",
        title="Loop e",
        level=2,
        minutes=8,
        task="""
Write `mend_e(model, batches, optimizer)`, the fifth loop without its fault. The batches are on the device, a simulated
A100 this time. It returns the list of losses. They and the change of the weights may be off by 5 in 100, and the
weights stay float32.
""",
        hints=(
            "The device is always busy, near its limit of FLOP/s. At which rate do its tensor cores multiply?",
            "Matrix products need not run in float32. Autocast, or TF32, changes them and nothing else.",
            "Compute model and loss within `torch.autocast(x.device.type, torch.bfloat16)`; backward and step stay "
            "outside.",
        ),
        why="Where arithmetic is the limit, a cheaper number format moves the limit itself. The weights stay in float32, "
        "because a small step would be lost in 16 bits. (With float16 in bfloat16's place add a `GradScaler`, as in "
        "lesson 04. The gradients of this loop are large enough to pass without one; yours may not be.)",
        diagnoses={
            "as-slow": "The time is the given loop's. The large matrix products still run in float32.",
            "only-some": "Some of the matrix products are faster, and the others still run in float32.",
        },
        wrong={
            "as-slow": _e_loss_only,
            "only-some": _e_one_layer,
            "weights-dtype": _e_weights_in_16_bits,
            "other-weights": _e_without_steps,
            "other-result": _e_half_the_rows,
            "waits-each-step": _e_by_item,
        },
    ),
    _mend(
        "f",
        title="Loop f",
        level=3,
        minutes=12,
        task="""
Write `mend_f(model, batches, optimizer)`, the sixth loop without its fault. The batches are on the device, and one of
them is smaller. It returns a list of Python numbers: after each step, the accuracy over all samples seen so far, each with
the output that its own step gave.
""",
        hints=(
            "Compare the last step with the first. What does it do that the first one did not?",
            "What must be known of all earlier samples, so that one more batch can be added?",
            "Two numbers are enough: how many were right, as a tensor on the device, and how many there were.",
        ),
        why="Work over everything so far makes each step a little slower, and a training of n steps does n² of it. In a short "
        "trial it does not show. A running count makes each step cost the same.",
        diagnoses={
            "still-grows": "The last steps still take longer than the first: the earlier samples are gone through again.",
            "moved-to-the-end": "The steps are fast now, and the same work is done after the last one.",
            "waits-each-step": "The host now waits for the device in every step: what you count need not leave it before "
            "the last one.",
            "per-batch": "That is the accuracy of each batch by itself. The task asks for all samples so far.",
            "aliased": "Every entry of the list is the same tensor; `+=` changed it later. Append a new tensor in each step.",
            "mean-of-means": "The mean of the batches' accuracies counts a small batch as much as a large one.",
        },
        wrong={
            "still-grows": _f_keeps_predictions,
            "moved-to-the-end": _f_at_the_end,
            "waits-each-step": _f_by_item,
            "per-batch": _f_per_batch,
            "mean-of-means": _f_mean_of_means,
            "aliased": _f_aliased,
            "other-length": _f_last_only,
        },
    ),
)
