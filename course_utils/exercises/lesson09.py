"""Exercises of lesson 09, the capstone.

Machines and trainings are made up by the checks: nothing is timed, so the same answer is judged alike on
every machine.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from .. import memory, simgpu
from .core import Exercise, Judge, _Raised

# gain --------------------------------------------------------------------------------------------


def gain(old, new, rounds, clock):
    def timed(work):
        begin = clock()
        work()
        return clock() - begin

    old()
    new()
    ratios = []
    for turn in range(rounds):
        if turn % 2 == 0:
            before = timed(old)
            after = timed(new)
        else:
            after = timed(new)
            before = timed(old)
        ratios.append(before / after)
    return tuple(statistics.quantiles(ratios, n=4, method="inclusive"))


class _Shared:
    """A machine that others use too: how long a call takes depends on when it is made.

    The first call of each loop is slow, and every call that comes second in a round is so by ``second``.
    """

    def __init__(self, old: float, new: float, load: Sequence[float], second: float) -> None:
        self.now, self.calls, self._load, self._second = 0.0, "", load, second
        self._seconds = {"o": old, "n": new}

    def clock(self) -> float:
        """Return the time in seconds."""
        return self.now

    def old(self) -> None:
        """Run the old loop."""
        self._run("o")

    def new(self) -> None:
        """Run the new loop."""
        self._run("n")

    def _run(self, which: str) -> None:
        took = self._seconds[which] * (1 if which in self.calls else 9)
        done = len(self.calls) - 2
        if done >= 0:
            took *= self._load[done // 2 % len(self._load)] * (self._second if done % 2 else 1)
            took *= 1 + done * 7 % 11 / 50
        self.calls += which
        self.now += took


_MACHINES = (
    ({"old": 2.0, "new": 1.6, "load": (1, 1, 3, 1.5, 1), "second": 1.1}, 5),
    ({"old": 1.0, "new": 4.0, "load": (1.0, 1.2, 5.0, 1.1, 1.3, 1.0, 2.0), "second": 1.3}, 7),
    ({"old": 3.0, "new": 3.0, "load": (1, 2, 4, 8), "second": 1.25}, 8),
)


def _right_order(rounds: int) -> str:
    return "".join("on" if turn % 2 == 0 else "no" for turn in range(rounds))


def _check_gain(answer: Callable[..., Any], judge: Judge) -> None:
    for settings, rounds in _MACHINES:
        machine = _Shared(**settings)
        got = answer(machine.old, machine.new, rounds, machine.clock)
        got = got.tolist() if hasattr(got, "tolist") else got  # an array or a tensor
        got = judge.is_a(got, (tuple, list), "three numbers")
        _judge_order(machine.calls, rounds, judge)
        twin = _Shared(**settings)
        right = gain(twin.old, twin.new, rounds, twin.clock)
        if len(got) != 3:
            judge.no("not-three", seen=got, expected="(lower quartile, median, upper quartile)")
        numbers = [judge.number(x) for x in got]
        if all(math.isclose(a, b, rel_tol=1e-6) for a, b in zip(numbers, right, strict=True)):
            continue
        judge.no(
            _gain_like(numbers, settings, rounds),
            seen=_three(numbers),
            expected=f"{_three(right)}, for {rounds} rounds on a machine that others use too",
        )


def _judge_order(calls: str, rounds: int, judge: Judge) -> None:
    if len(calls) == 2 * rounds:
        judge.no("no-warm-up", seen=f"{len(calls)} calls", expected=f"2 and then {2 * rounds}")
    if len(calls) != 2 * rounds + 2 or set(calls[:2]) != {"o", "n"}:
        judge.no(
            "other-calls",
            seen=_named(calls),
            expected=f"each loop once to warm up, then each once in {rounds} rounds",
        )
    timed = calls[2:]
    pairs = [timed[i : i + 2] for i in range(0, len(timed), 2)]
    if any(set(pair) != {"o", "n"} for pair in pairs):
        judge.no("in-blocks", seen=_named(timed), expected=_named(_right_order(rounds)))
    if len(set(pairs)) == 1:
        judge.no("same-order", seen=_named(timed), expected=_named(_right_order(rounds)))
    if timed != _right_order(rounds):
        judge.no("other-order", seen=_named(timed), expected=_named(_right_order(rounds)))


def _named(calls: str) -> str:
    return " ".join({"o": "old", "n": "new"}[call] for call in calls)


def _three(numbers: Sequence[float]) -> str:
    return ", ".join(f"{number:.4g}" for number in numbers)


def _gain_like(numbers: list[float], settings: dict[str, Any], rounds: int) -> str:
    """Return the diagnosis of a wrong result, from what other rules would give."""
    for name, other in _GAIN_TWINS.items():
        machine = _Shared(**settings)
        found = other(machine.old, machine.new, rounds, machine.clock)
        if all(math.isclose(a, b, rel_tol=1e-6) for a, b in zip(numbers, found, strict=True)):
            return name
    return "wrong-value"


def _timed_rounds(old, new, rounds, clock, *, swap=True, warm=True):
    """Return the seconds of the old and of the new loop in each round."""
    if warm:
        old()
        new()
    pairs = []
    for turn in range(rounds):
        took = {}
        for name in ("new", "old") if swap and turn % 2 else ("old", "new"):
            begin = clock()
            {"old": old, "new": new}[name]()
            took[name] = clock() - begin
        pairs.append((took["old"], took["new"]))
    return pairs


def _quartiles(values):
    return tuple(statistics.quantiles(values, n=4, method="inclusive"))


def _gain_upside_down(old, new, rounds, clock):
    return _quartiles([b / a for a, b in _timed_rounds(old, new, rounds, clock)])


def _gain_first_over_second(old, new, rounds, clock):
    pairs = _timed_rounds(old, new, rounds, clock)
    return _quartiles([b / a if turn % 2 else a / b for turn, (a, b) in enumerate(pairs)])


def _gain_of_medians(old, new, rounds, clock):
    pairs = _timed_rounds(old, new, rounds, clock)
    a, b = (_quartiles([pair[i] for pair in pairs]) for i in (0, 1))
    return tuple(x / y for x, y in zip(a, b, strict=True))


def _gain_exclusive(old, new, rounds, clock):
    ratios = [a / b for a, b in _timed_rounds(old, new, rounds, clock)]
    return tuple(statistics.quantiles(ratios, n=4))


def _gain_extremes(old, new, rounds, clock):
    ratios = [a / b for a, b in _timed_rounds(old, new, rounds, clock)]
    return min(ratios), statistics.median(ratios), max(ratios)


def _gain_in_one_order(old, new, rounds, clock):
    return _quartiles([a / b for a, b in _timed_rounds(old, new, rounds, clock, swap=False)])


def _gain_cold(old, new, rounds, clock):
    return _quartiles([a / b for a, b in _timed_rounds(old, new, rounds, clock, warm=False)])


def _gain_in_blocks(old, new, rounds, clock):
    old()
    new()
    times = []
    for work in (old, new):
        for _ in range(rounds):
            begin = clock()
            work()
            times.append(clock() - begin)
    return _quartiles([a / b for a, b in zip(times[:rounds], times[rounds:], strict=True)])


_GAIN_TWINS: dict[str, Callable[..., tuple[float, ...]]] = {
    "upside-down": _gain_upside_down,
    "first-over-second": _gain_first_over_second,
    "ratio-of-medians": _gain_of_medians,
    "exclusive": _gain_exclusive,
    "extremes": _gain_extremes,
}


# crop_flip ---------------------------------------------------------------------------------------


def crop_flip(images, pad, flip):
    n, _, height, width = images.shape
    windows = F.pad(images, (pad, pad, pad, pad)).unfold(2, height, 1).unfold(3, width, 1)
    top, left = torch.randint(2 * pad + 1, (2, n), device=images.device)
    cut = windows[torch.arange(n, device=images.device), :, top, left]
    mirrored = torch.rand((n, 1, 1, 1), device=images.device) < flip
    return torch.where(mirrored, cut.flip(3), cut)


class _Operations(TorchDispatchMode):
    """Counts operations, and notes those for which the host would have to wait."""

    def __init__(self) -> None:
        super().__init__()
        self.count, self.waits = 0, 0

    def __torch_dispatch__(self, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += 1
        name = str(op.overloadpacket).removeprefix("aten.")
        by_mask = name in ("index", "index_put_", "index_put") and any(
            isinstance(index, Tensor) and index.dtype == torch.bool for index in args[1]
        )
        self.waits += by_mask or name in ("_local_scalar_dense", "nonzero", "masked_select")
        return op(*args, **(kwargs or {}))


def _numbered(n: int, height: int, width: int, dtype: torch.dtype) -> Tensor:
    """Return images whose pixels say where they are: row and column from 1 on, and the image's number."""
    rows = torch.arange(1, height + 1).view(1, -1, 1).expand(n, height, width)
    columns = torch.arange(1, width + 1).view(1, 1, -1).expand(n, height, width)
    number = (torch.arange(n) % 200 + 1).view(-1, 1, 1).expand(n, height, width)
    return torch.stack([rows, columns, number], dim=1).to(dtype)


def _candidates(images: Tensor, pad: int) -> Tensor:
    """Return all crops of each image: (places, mirrored or not, n, channels, height, width)."""
    padded = F.pad(images, (pad, pad, pad, pad))
    height, width = images.shape[2:]
    cuts = [
        padded[:, :, top : top + height, left : left + width]
        for top in range(2 * pad + 1)
        for left in range(2 * pad + 1)
    ]
    return torch.stack([torch.stack([cut, cut.flip(3)]) for cut in cuts])


def _check_crop_flip(answer: Callable[..., Any], judge: Judge) -> None:
    for seed, (shape, dtype, pad, flip) in enumerate(_CROPS):
        images = _numbered(*shape, dtype)
        crops = _candidates(images, pad)
        torch.manual_seed(_SEED + seed)
        calls = []
        for _ in range(2):
            got = judge.is_a(answer(images, pad, flip), Tensor, "a tensor")
            if got.shape != images.shape or got.dtype != dtype:
                judge.no(
                    "other-shape",
                    seen=f"{tuple(got.shape)}, {got.dtype}",
                    expected=f"{tuple(images.shape)}, {dtype}",
                )
            calls.append(_read_crops(crops, got, pad, judge))
            _judge_spread(*calls[-1], pad, flip, judge)
        _judge_second(*calls, pad, flip, judge)
        if torch.initial_seed() != _SEED + seed:
            judge.no("seeded", seen="torch's random numbers began anew", expected="they go on")
    few, many = (_operations(_bare(answer), n) for n in (8, 40))
    if many.count >= few.count + 32:
        judge.no(
            "one-by-one",
            seen=f"{few.count} operations for 8 images, {many.count} for 40",
            expected="as many for 40 as for 8",
        )
    if many.waits:
        judge.no(
            "waits",
            seen=f"{many.waits} operations whose result the host must know before it goes on",
            expected="none",
        )
    if not simgpu.problem():
        _judge_elsewhere(answer, judge)


def _operations(answer: Callable[..., Any], n: int) -> _Operations:
    images = _numbered(n, 6, 6, torch.uint8)
    with _Operations() as seen:
        answer(images, 2, 0.5)
    return seen


def _bare(answer: Callable[..., Any]) -> Callable[..., Any]:
    """Return the learner's function without the checker's own operations on its arguments."""

    def call(*args: Any) -> Any:
        try:
            return answer.__wrapped__(*args)
        except Exception as error:  # noqa: BLE001  (whatever it was, it is the learner's)
            raise _Raised(error) from None

    return call


def _judge_elsewhere(answer: Callable[..., Any], judge: Judge) -> None:
    with memory.spare_device("1 GB") as device:
        images = _numbered(8, 6, 6, torch.uint8).to(device)
        with simgpu.count() as asked:
            got = _bare(answer)(images, 2, 0.5)
        if got.device != images.device or asked.copies:
            judge.no(
                "made-on-the-host",
                seen=f"{len(asked.copies)} copies between host and device, result on {got.device.type}",
                expected="no copy: everything is made where the images are",
            )


_SEED = 905_117
"""No seed that anybody takes, so that an answer which sets one is noticed."""

_CROPS = (
    ((500, 6, 5), torch.uint8, 1, 0.5),
    ((600, 4, 6), torch.float32, 2, 0.0),
    ((200, 5, 5), torch.float32, 1, 1.0),
    ((500, 5, 4), torch.uint8, 1, 0.25),
)


def _read_crops(crops: Tensor, got: Tensor, pad: int, judge: Judge) -> tuple[Tensor, Tensor]:
    """Return for each image which crop it is, and whether it is mirrored."""
    match = (crops == got).flatten(3).all(3)  # (places, 2, n)
    found = match.flatten(0, 1)
    if not found.any(0).all():
        first = int((~found.any(0)).nonzero()[0])
        over = (crops == got.flip(2)).flatten(3).all(3).flatten(0, 1)
        if (found | over).any(0).all():
            judge.no(
                "upside-down-images", seen="images mirrored top to bottom", expected="left to right"
            )
        inside = not bool((got[first] == 0).any())
        judge.no(
            "no-border" if inside and pad else "no-crop",
            seen=f"image {first}: {got[first, :2].tolist()} (rows and columns, numbered from 1)",
            expected="a window of the image with a border of zeros",
        )
    which = found.float().argmax(0)
    return which // 2, which % 2 == 1


def _judge_spread(places: Tensor, mirrored: Tensor, pad: int, flip: float, judge: Judge) -> None:
    side = 2 * pad + 1
    top, left = places // side, places % side
    seen = f"{len(places.unique())} different places in {len(places)} images"
    if len(places.unique()) == 1:
        judge.no("one-offset", seen=seen, expected=f"{side * side}")
    if bool((top == left).all()):
        judge.no(
            "diagonal", seen="as far down as to the right, in all images", expected="two draws"
        )
    counts = torch.bincount(places, minlength=side * side)
    fair = len(places) / side**2
    if int(counts.min()) == 0:
        judge.no("missing-places", seen=seen, expected=f"{side * side}")
    if bool(((counts - fair).abs() > 6 * math.sqrt(fair)).any()):
        judge.no("unfair", seen=f"{counts.tolist()} images a place", expected=f"about {fair:.0f}")
    share = float(mirrored.float().mean())
    if share in (0.0, 1.0) and flip not in (0.0, 1.0):
        judge.no("one-coin", seen=f"{share:.0%} mirrored", expected=f"about {flip:.0%}")
    if abs(share - flip) > 5 * math.sqrt(max(flip * (1 - flip), 1e-9) / len(places)) + 1e-9:
        judge.no("flip-share", seen=f"{share:.0%} mirrored", expected=f"about {flip:.0%}")


def _judge_second(
    first: tuple[Tensor, Tensor],
    second: tuple[Tensor, Tensor],
    pad: int,
    flip: float,
    judge: Judge,
) -> None:
    """Judge whether a second call drew anew: down, to the right, and the coins."""
    side = 2 * pad + 1
    down = bool((first[0] // side == second[0] // side).all())
    right = bool((first[0] % side == second[0] % side).all())
    coins = bool((first[1] == second[1]).all())
    seen = "a second call with the same images gave the same "
    if down and right and coins and 0 < flip < 1:
        judge.no("same-again", seen=f"{seen}crops", expected="others")
    if down or right:
        judge.no("same-places", seen=f"{seen}places", expected="others")
    if coins and 0 < flip < 1:
        judge.no("same-mirrored", seen=f"{seen}mirrored ones", expected="others")


def _crop_with(*, top=None, coin=None, axis=3, edge=1, same=False):
    def crop_flip(images, pad, flip):
        n, _, height, width = images.shape
        windows = F.pad(images, (pad,) * 4).unfold(2, height, 1).unfold(3, width, 1)
        place = torch.randint(2 * pad + edge, (2, n))
        if top == "one":
            place = place[:, :1].expand(2, n)
        if same:
            place = place[:1].expand(2, n)
        cut = windows[torch.arange(n), :, place[0], place[1]]
        mirrored = torch.rand((1 if coin == "one" else n, 1, 1, 1)) < flip
        if coin == "inverted":
            mirrored = ~mirrored
        return torch.where(mirrored, cut.flip(axis), cut)

    return crop_flip


def _crop_one_by_one(images, pad, flip):
    padded = F.pad(images, (pad,) * 4)
    height, width = images.shape[2:]
    cuts = []
    for image, place, coin in zip(
        padded,
        torch.randint(2 * pad + 1, (len(images), 2)).tolist(),
        torch.rand(len(images)).tolist(),
        strict=True,
    ):
        cut = image[:, place[0] : place[0] + height, place[1] : place[1] + width]
        cuts.append(cut.flip(2) if coin < flip else cut)
    return torch.stack(cuts)


def _crop_by_rolling(images, pad, flip):
    rolled = torch.roll(images, (1, -1), (2, 3))
    mirrored = torch.rand((len(images), 1, 1, 1)) < flip
    return torch.where(mirrored, rolled.flip(3), rolled)


def _crop_by_masks(images, pad, flip):
    padded, out = F.pad(images, (pad,) * 4), torch.empty_like(images)
    height, width = images.shape[2:]
    place = torch.randint((2 * pad + 1) ** 2, (len(images),))
    for k in range((2 * pad + 1) ** 2):
        top, left = divmod(k, 2 * pad + 1)
        out[place == k] = padded[place == k, :, top : top + height, left : left + width]
    mirrored = torch.rand((len(images), 1, 1, 1)) < flip
    return torch.where(mirrored, out.flip(3), out)


def _crop_on_the_host(images, pad, flip):
    return crop_flip(images.cpu(), pad, flip).to(images.device)


def _crop_seeded(images, pad, flip):
    torch.manual_seed(0)
    return crop_flip(images, pad, flip)


def _crop_seeded_by_the_clock(images, pad, flip):
    torch.seed()
    return crop_flip(images, pad, flip)


def _crop_by_turns(images, pad, flip):
    n, _, height, width = images.shape
    windows = F.pad(images, (pad,) * 4).unfold(2, height, 1).unfold(3, width, 1)
    turn, side = torch.arange(n, device=images.device), 2 * pad + 1
    cut = windows[turn, :, turn // side % side, turn % side]
    mirrored = torch.rand((n, 1, 1, 1), device=images.device) < flip
    return torch.where(mirrored, cut.flip(3), cut)


def _crop_first_mirrored(images, pad, flip):
    cut = crop_flip(images, pad, 0.0)
    count = round(len(cut) * flip)
    return torch.cat([cut[:count].flip(3), cut[count:]])


def _crop_as_float(images, pad, flip):
    return _crop_with()(images, pad, flip) / 255


# learning_rate -----------------------------------------------------------------------------------


def learning_rate(step, steps, peak, warm):
    return peak * min((step + 1) / warm, (steps - step) / (steps - warm + 1))


_RATE_TWINS: dict[str, Callable[[int, int, float, int], float]] = {
    "first-step-lost": lambda step, steps, peak, warm: (
        peak * min(step / warm, (steps - step) / (steps - warm))
    ),
    "last-step-lost": lambda step, steps, peak, warm: (
        peak * min((step + 1) / warm, (steps - 1 - step) / (steps - warm))
    ),
    "peak-twice": lambda step, steps, peak, warm: (
        peak * ((step + 1) / warm if step < warm else (steps - step) / (steps - warm))
    ),
    "stays-up": lambda step, steps, peak, warm: peak * min((step + 1) / warm, 1),
    "no-warm-up": lambda step, steps, peak, warm: peak * (steps - step) / steps,
    "cosine": lambda step, steps, peak, warm: (
        peak * (step + 1) / warm
        if step < warm
        else peak * (1 + math.cos(math.pi * (step - warm + 1) / (steps - warm + 1))) / 2
    ),
    "share": lambda step, steps, peak, warm: learning_rate(step, steps, 1.0, warm),
}


def _check_learning_rate(answer: Callable[..., Any], judge: Judge) -> None:
    for steps, peak, warm in (
        (10, 0.4, 3),
        (125, 0.1, 25),
        (8, 2.0, 1),
        (6, 1.0, 6),
        (40, 0.03, 10),
    ):
        got = [judge.number(answer(step, steps, peak, warm)) for step in range(steps)]
        right = [learning_rate(step, steps, peak, warm) for step in range(steps)]
        wrong = [i for i in range(steps) if not math.isclose(got[i], right[i], rel_tol=1e-6)]
        if wrong:
            judge.no(
                _rate_like(got, steps, peak, warm),
                seen=f"step {wrong[0]} of {steps}: {got[wrong[0]]:.6g} (peak {peak:g}, {warm} to warm up)",
                expected=f"{right[wrong[0]]:.6g}",
            )


def _rate_like(got: Sequence[float], steps: int, peak: float, warm: int) -> str:
    for name, twin in _RATE_TWINS.items():
        try:
            other = [twin(step, steps, peak, warm) for step in range(steps)]
        except ZeroDivisionError:
            continue
        if all(math.isclose(a, b, rel_tol=1e-6) for a, b in zip(got, other, strict=True)):
            return name
    return "wrong-value"


def _rate_of(name: str) -> Callable[..., float]:
    twin = _RATE_TWINS[name]

    def answer(step, steps, peak, warm):
        return twin(step, steps, peak, warm)

    return answer


# time_to_target ----------------------------------------------------------------------------------


def time_to_target(runs, target):
    times = []
    for run in runs:
        reached = [seconds for seconds, accuracy in run if accuracy >= target]
        times.append(min(reached, default=math.inf))
    return statistics.median(times)


def _only_survivors(runs, target):
    firsts = [[s for s, a in run if a >= target] for run in runs]
    return statistics.median([min(first) for first in firsts if first])


def _survivors(runs, target):
    try:
        return _only_survivors(runs, target)
    except statistics.StatisticsError:
        return math.inf


_TARGET_TWINS: dict[str, Callable[[Any, float], float]] = {
    "survivors": _survivors,
    "end-of-run": lambda runs, target: statistics.median(
        run[-1][0] if any(a >= target for _, a in run) else math.inf for run in runs
    ),
    "last-hit": lambda runs, target: statistics.median(
        max((s for s, a in run if a >= target), default=math.inf) for run in runs
    ),
    "when-best": lambda runs, target: statistics.median(
        max(run, key=lambda point: point[1])[0] if max(a for _, a in run) >= target else math.inf
        for run in runs
    ),
    "above-only": lambda runs, target: statistics.median(
        min((s for s, a in run if a > target), default=math.inf) for run in runs
    ),
    "best-run": lambda runs, target: min(
        min((s for s, a in run if a >= target), default=math.inf) for run in runs
    ),
    "mean": lambda runs, target: statistics.fmean(
        min((s for s, a in run if a >= target), default=math.inf) for run in runs
    ),
    "failures-at-the-end": lambda runs, target: statistics.median(
        min((s for s, a in run if a >= target), default=run[-1][0]) for run in runs
    ),
}


def _passing(begin: float) -> list[tuple[float, float]]:
    """Return a run that reaches 95 %, goes beyond, is at its best, has 95 % once more, and ends below."""
    return [(begin + i, a) for i, a in enumerate((0.60, 0.95, 0.96, 0.98, 0.95, 0.94))]


_RUNS = (
    [(1.0, 0.80), (2.0, 0.93), (3.0, 0.96), (4.0, 0.97)],
    [(1.5, 0.85), (2.5, 0.95), (3.5, 0.94), (4.5, 0.98)],
    [(1.1, 0.70), (2.1, 0.75), (3.1, 0.80), (4.1, 0.82)],
    [(0.9, 0.60), (1.9, 0.96), (2.9, 0.91)],
    [(2.0, 0.94), (4.0, 0.95), (7.0, 0.99), (9.0, 0.97)],
    [(1.2, 0.30), (2.4, 0.20)],
    [(5.0, 0.96)],
    *(_passing(begin) for begin in (3.0, 4.0, 6.0, 7.5)),
)
_TARGETS = (
    ((7, 2, 8, 10, 9), 0.95),
    ((0, 1, 2, 3, 4), 0.95),
    ((0, 1, 4), 0.96),
    (range(7), 0.94),
    ((6, 3), 0.96),
    ((2, 5, 0), 0.9),
    ((2, 5), 0.9),
)
"""The first case tells all known faults apart; in the last all fail, where a median of the others is an error."""


def _check_time_to_target(answer: Callable[..., Any], judge: Judge) -> None:
    cases = [([_RUNS[i] for i in chosen], target) for chosen, target in _TARGETS]
    right = [time_to_target(*case) for case in cases]
    got: list[float] = []
    for case in cases:
        try:
            found = answer(*case)
        except _Raised:
            if not any(map(_differs, got, right)):
                raise
            break  # the earlier cases say more
        got.append(judge.is_a(found, (int, float), "a number, or math.inf"))
    for (runs, target), found, expected in zip(cases, got, right, strict=False):
        if _differs(found, expected):
            failed = sum(all(a < target for _, a in run) for run in runs)
            judge.no(
                _target_like(got, cases),
                seen=f"{found:g} s for {len(runs)} runs to {target:.0%}, of which {failed} never get there",
                expected=f"{expected:g} s",
            )


def _differs(found: float, expected: float) -> bool:
    return not math.isclose(found, expected, rel_tol=1e-6)


def _target_like(got: Sequence[float], cases: Sequence[tuple[Any, float]]) -> str:
    for name, twin in _TARGET_TWINS.items():
        if not any(_differs(x, twin(*case)) for x, case in zip(got, cases, strict=False)):
            return name
    return "wrong-value"


def _target_of(name: str) -> Callable[..., float]:
    twin = _TARGET_TWINS[name]

    def answer(runs, target):
        return twin(runs, target)

    return answer


EXERCISES = (
    Exercise(
        id="09.gain",
        title="Old against new, on a machine that is never quiet",
        level=2,
        minutes=12,
        task="""
Write `gain(old, new, rounds, clock)`, the ledger's own measurement. `old()` and `new()` run the two loops
for equally many images; `clock()` returns seconds. Warm both up with one call each that is not timed, the old one first. Then
come `rounds` rounds. In each, time one call of each; the old loop begins the first round, the new one the
second, and so on in turns. A round gives one number: how many times as fast the new loop was. Return
**(lower quartile, median, upper quartile)** of these numbers, as
`statistics.quantiles(numbers, n=4, method="inclusive")` gives them.
""",
        hints=(
            "When another program slows the machine down for a while, what keeps it from touching the result? "
            "Both calls of a round must meet it, and be compared with each other.",
            "Write a small function that times one call. In a round, `turn % 2` says who begins.",
            "The speed-up of a round is the old loop's seconds over the new one's. Collect one for each round, and take "
            "the quartiles at the end.",
        ),
        reference=gain,
        check_answer=_check_gain,
        why="Each round compares two neighbours, so slow minutes cancel, and swapping cancels what the first call "
        "of a pair does to the second. The quartiles say whether the median means anything.",
        diagnoses={
            "no-warm-up": "The first call of each loop is slow (libraries load, memory is fetched). It must not be "
            "timed.",
            "other-calls": "After one call each to warm up, each loop runs once in every round.",
            "in-blocks": "All calls of one loop came before the other's: if the machine gets slower in between, the "
            "second loop is blamed for it.",
            "same-order": "The same loop began every round. What the first call leaves behind, such as heat, or a "
            "full cache, always meets the other.",
            "other-order": "The old loop begins the first round, the new one the second, and so on.",
            "not-three": "Return three numbers.",
            "upside-down": "That is the new loop's time over the old one's: below 1 where the new loop is faster.",
            "first-over-second": "In every second round you divided the new loop's time by the old one's. Whoever begins, "
            "the new loop's time is below the line.",
            "ratio-of-medians": "You compared the middle of one list with the middle of the other. They may be from "
            "different rounds, and so from a quiet minute and a busy one.",
            "exclusive": "These are quartiles by the other rule, which is for a sample of something larger. The task names "
            'the method "inclusive".',
            "extremes": "The least and the greatest number are what one interruption makes of them. Quartiles bear "
            "a few.",
        },
        wrong={
            "no-warm-up": _gain_cold,
            "in-blocks": _gain_in_blocks,
            "same-order": _gain_in_one_order,
            "upside-down": _gain_upside_down,
            "first-over-second": _gain_first_over_second,
            "ratio-of-medians": _gain_of_medians,
            "exclusive": _gain_exclusive,
            "extremes": _gain_extremes,
        },
    ),
    Exercise(
        id="09.crop_flip",
        title="A random crop for each image, all at once",
        level=3,
        minutes=20,
        task="""
Write `crop_flip(images, pad, flip)`: for a batch `(n, channels, height, width)` on any device, of any
dtype, put a border of `pad` zeros around each image, cut a window of the old size out of it at a random place, and mirror
it left to right with probability `flip`. **Each image** has a place and a coin of its own, all places are
equally likely, and shape and dtype stay. No loop over images, and nothing that makes the host wait.
""",
        hints=(
            "How many windows has one padded image? `tensor.unfold(dim, size, 1)` shows all of them along a dimension, as a "
            "view, without copying a byte.",
            "After two `unfold`s, `windows[which, :, top, left]` picks one window for each image, if `which`, `top` and "
            "`left` are index tensors of n numbers. There are 2·pad + 1 places each way.",
            "Draw `torch.rand((n, 1, 1, 1)) < flip`, and let `torch.where` choose between the window and its mirror image. "
            "Make every new tensor on `images.device`.",
        ),
        reference=crop_flip,
        check_answer=_check_crop_flip,
        why="The same handful of operations serves 8 images or 8,000. Per image the work was tiny; what was slow was to "
        "ask for it once for each.",
        diagnoses={
            "other-shape": "Shape and dtype of the batch must stay as they are.",
            "no-crop": "An image is not one of the windows that the task allows, mirrored or not.",
            "no-border": "An image moved, but nothing of the border is to be seen: what left on one side came back on the "
            "other, or the places are wrong.",
            "upside-down-images": "The images were mirrored top to bottom. Which dimension is the width?",
            "one-offset": "The whole batch was moved by the same offset. Each image needs its own draw.",
            "diagonal": "Every image moves as far down as it moves to the right: one draw was used for both.",
            "missing-places": "Some places never come. A border of `pad` on both sides leaves 2·pad + 1 places each "
            "way, the last one included.",
            "unfair": "All places come, but not equally often.",
            "one-coin": "The whole batch was mirrored, or none of it: one coin for all.",
            "flip-share": "The share of mirrored images is not the probability that was asked for.",
            "same-again": "Called twice, it does the same to the same images. Is a seed set inside? Then every epoch has the same crops.",
            "same-places": "Called again, each image moves as far down, or as far to the right, as before: that follows from its number, "
            "or from a fixed seed.",
            "same-mirrored": "In each call the same images are mirrored. Each image tosses a coin of its own, every time.",
            "seeded": "Your function starts torch's random numbers anew, and with them those of the whole program.",
            "waits": "On a GPU the host would have to wait here: for `.item()`, or for a mask used as an index, whose number of "
            "hits it must know.",
            "made-on-the-host": "The images are on a device, and something that you drew or counted was on the host: it had to "
            "be carried across. Say `device=images.device` wherever a tensor is made.",
            "one-by-one": "The number of operations grows with the batch: somewhere there is a loop over images.",
        },
        wrong={
            "one-offset": _crop_with(top="one"),
            "diagonal": _crop_with(same=True),
            "missing-places": _crop_with(edge=0),
            "one-coin": _crop_with(coin="one"),
            "flip-share": _crop_with(coin="inverted"),
            "upside-down-images": _crop_with(axis=2),
            "no-border": _crop_by_rolling,
            "same-again": _crop_seeded,
            "same-places": _crop_by_turns,
            "same-mirrored": _crop_first_mirrored,
            "seeded": _crop_seeded_by_the_clock,
            "one-by-one": _crop_one_by_one,
            "waits": _crop_by_masks,
            "made-on-the-host": _crop_on_the_host,
            "other-shape": _crop_as_float,
        },
    ),
    Exercise(
        id="09.learning_rate",
        title="Up, and down to nothing",
        level=2,
        minutes=10,
        task="""
Write `learning_rate(step, steps, peak, warm)`: the rate of step `step`, counted from 0, in a training of `steps`
steps. It rises by equal amounts: it would be 0 just *before* the first step, and is `peak` in the last of the
`warm` steps of warm-up. Then it falls by equal amounts: it would be 0 just *after* the last step. No step has rate 0, and
only one has `peak`. `warm` lies between 1 and `steps`.
""",
        hints=(
            "Draw it for 10 steps of which 3 are warm-up. The three are 1/3, 2/3, 3/3 of the peak. How many equal amounts then lead "
            "from the peak to 0?",
            "The peak is step warm − 1, and 0 would be step `steps`: so it takes steps − warm + 1 amounts down. In step `step`, "
            "steps − step of them are still left.",
            "The rate is the smaller of two lines, times the peak.",
        ),
        reference=learning_rate,
        check_answer=_check_learning_rate,
        why="A high rate learns fast and rattles; a low one settles. Rising first, it does not throw the weights about while they "
        "are still random; falling to the end, it settles exactly when the time is up.",
        diagnoses={
            "first-step-lost": "The first step has rate 0: a step that is paid for and learns nothing.",
            "last-step-lost": "The last step has rate 0. It would be 0 only after it.",
            "peak-twice": "Two steps have the peak: the fall begins one step late, and is a little steeper for it.",
            "stays-up": "It never falls: the last steps rattle as much as the middle ones.",
            "no-warm-up": "It begins near the peak: nothing rises.",
            "cosine": "That falls along a cosine, as OneCycleLR does by default. Equal amounts are asked for here.",
            "share": "That is the share of the peak, not the rate.",
        },
        wrong={
            name: _rate_of(name)
            for name in (
                "last-step-lost",
                "peak-twice",
                "stays-up",
                "no-warm-up",
                "cosine",
                "share",
            )
        },
    ),
    Exercise(
        id="09.time_to_target",
        title="The runs that never got there",
        level=2,
        minutes=8,
        task="""
Write `time_to_target(runs, target)`. Each run is a list of `(seconds, accuracy)`, one pair for each evaluation, in order of
time. A run has reached the target at its *first* evaluation with at least that accuracy. Return the median over **all** runs of
the seconds until then. A run that never gets there takes longer than any other: count it as
`math.inf`.
""",
        hints=(
            "What happens to the median if you leave the failures out? Would a recipe that fails nine times in ten then look bad?",
            "For one run: the least of the seconds whose accuracy is high enough. `min(…, default=math.inf)` also "
            "serves a run that has none.",
        ),
        reference=time_to_target,
        check_answer=_check_time_to_target,
        why="A time to a target is only worth something if the failures are in it. With a median they can be: half of all "
        "runs are there by then, or the answer is infinite, and says so.",
        diagnoses={
            "survivors": "The runs that failed were left out: the fewer get there, the better this looks.",
            "end-of-run": "That is when the run ended, not when it reached the target.",
            "last-hit": "That is the last evaluation with at least that accuracy. Stop at the first.",
            "when-best": "That is when the run was at its best. It had reached the target before.",
            "above-only": "*At least* the target: equal counts.",
            "best-run": "That is the fastest run. The next one will hardly be so lucky.",
            "mean": "That is the mean: one failure makes it infinite, one slow run moves it.",
            "failures-at-the-end": "A run that failed was counted as if it had got there at its end.",
        },
        wrong={
            **{name: _target_of(name) for name in _TARGET_TWINS},
            "survivors": _only_survivors,
        },
    ),
)
