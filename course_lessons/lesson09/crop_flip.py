"""A random crop for each image, all at once."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

import simgpu
from course_lessons.lesson09.checking import Operations, candidates, found, numbered
from course_lessons.shared import memory
from course_utils.exercises import Exercise, Judge
from course_utils.exercises.judge import Raised


def crop_flip(images, pad, flip):
    n, _, height, width = images.shape
    windows = F.pad(images, (pad, pad, pad, pad)).unfold(2, height, 1).unfold(3, width, 1)
    top, left = torch.randint(2 * pad + 1, (2, n), device=images.device)
    cut = windows[torch.arange(n, device=images.device), :, top, left]
    mirrored = torch.rand((n, 1, 1, 1), device=images.device) < flip
    return torch.where(mirrored, cut.flip(3), cut)


def _check_crop_flip(answer: Callable[..., Any], judge: Judge) -> None:
    for seed, (shape, dtype, pad, flip) in enumerate(_CROPS):
        images = numbered(*shape, dtype)
        crops = candidates(images, pad)
        torch.manual_seed(_SEED + seed)
        calls = []
        for _ in range(2):
            got = judge.is_a(answer(images, pad, flip), Tensor, "a tensor")
            if got.shape != images.shape or got.dtype != dtype:
                judge.no(
                    seen=f"{tuple(got.shape)}, {got.dtype}",
                    expected=f"{tuple(images.shape)}, {dtype}",
                )
            calls.append(_read_crops(crops, got, judge))
            _judge_spread(*calls[-1], pad, flip, judge)
        _judge_second(*calls, pad, flip, judge)
        _judge_shared(*calls[-1], pad, flip, judge)
        if torch.initial_seed() != _SEED + seed:
            judge.no(seen="torch's random numbers began anew", expected="they go on")
    few, many = (_operations(_bare(answer), n) for n in (8, 40))
    if many.count >= few.count + 32:
        judge.no(
            "one-by-one",
            seen=f"{few.count} operations for 8 images, {many.count} for 40",
            expected="as many for 40 as for 8",
        )
    for diagnosis in many.waits:
        judge.no(
            diagnosis,
            seen=f"{len(many.waits)} operations whose result the host must know before it goes on",
            expected="none",
        )
    if not simgpu.problem():
        _judge_elsewhere(answer, judge)


def _operations(answer: Callable[..., Any], n: int) -> Operations:
    images = numbered(n, 6, 6, torch.uint8)
    with Operations() as seen:
        answer(images, 2, 0.5)
    return seen


def _bare(answer: Callable[..., Any]) -> Callable[..., Any]:
    """Return the learner's function without the checker's own operations on its arguments."""

    def call(*args: Any) -> Any:
        try:
            return answer.__wrapped__(*args)
        except Exception as error:  # noqa: BLE001  (whatever it was, it is the learner's)
            raise Raised(error) from None

    return call


def _judge_elsewhere(answer: Callable[..., Any], judge: Judge) -> None:
    with memory.spare_device("1 GB") as device:
        images = numbered(8, 6, 6, torch.uint8).to(device)
        with simgpu.count() as asked:
            got = _bare(answer)(images, 2, 0.5)
    if got.device != images.device:
        judge.no(
            seen=f"a result on {got.device}",
            expected="on sim, as the images",
        )
    if copies := asked.copies_to_host:
        judge.no(seen=f"{copies} copies to the host", expected="no copies")
    if copies := len(asked.copies):
        judge.no("made-on-the-host", seen=f"copies to the device: {copies}", expected="no copies")


_SEED = 905_117
"""No seed that anybody takes, so that an answer which sets one is noticed."""


_CROPS = (
    ((500, 6, 5), torch.uint8, 1, 0.5),
    ((600, 4, 6), torch.float32, 2, 0.0),
    ((200, 5, 5), torch.float32, 1, 1.0),
    ((500, 5, 4), torch.uint8, 1, 0.25),
)


def _read_crops(crops: Tensor, got: Tensor, judge: Judge) -> tuple[Tensor, Tensor]:
    """Return for each image which crop it is, and whether it is mirrored."""
    hits = found(crops, got).flatten(0, 1)
    off = ~hits.any(0)
    if off.any():
        first = int(off.nonzero()[0])
        judge.no(
            seen=f"image {first}: {got[first, :2].tolist()} (rows and columns, numbered from 1)",
            expected="a window of the image with a border of zeros",
        )
    which = hits.float().argmax(0)
    return which // 2, which % 2 == 1


def _judge_spread(places: Tensor, mirrored: Tensor, pad: int, flip: float, judge: Judge) -> None:
    """Judge whether all places come equally often, and as many images are mirrored as should be."""
    side = 2 * pad + 1
    top, left = places // side, places % side
    counts = torch.bincount(places, minlength=side * side)
    fair = len(places) / side**2
    if int(counts.min()) == 0 or bool(((counts - fair).abs() > 6 * math.sqrt(fair)).any()):
        same = len(places.unique()) == 1 and int(places[0]) != side * side // 2
        judge.no(
            "one-offset" if same else "wrong-value",
            seen=f"{counts.tolist()} images a place",
            expected=f"about {fair:.0f} in each of {side * side}",
        )
    spread = math.sqrt(flip * (1 - flip))
    share = float(mirrored.float().mean())
    if abs(share - flip) > 5 * spread / math.sqrt(len(places)) + 1e-9:
        judge.no(
            "one-coin" if share in (0.0, 1.0) and 0 < flip < 1 else "wrong-value",
            seen=f"{share:.0%} mirrored",
            expected=f"about {flip:.0%}",
        )
    for way, where in (("places down", top), ("places to the right", left)):
        for at in range(side):
            coins = mirrored[where == at].float()
            if abs(float(coins.mean()) - flip) > 6 * spread / math.sqrt(len(coins)) + 1e-9:
                judge.no(
                    seen=f"{coins.mean():.0%} mirrored of those cut {at} {way}",
                    expected=f"about {flip:.0%}",
                )


def _judge_second(
    first: tuple[Tensor, Tensor], second: tuple[Tensor, Tensor], pad: int, flip: float, judge: Judge
) -> None:
    """Judge whether a second call drew anew: down, to the right, and the coins."""
    side = 2 * pad + 1
    for same, drawn in (
        (first[0] // side == second[0] // side, "places, up and down"),
        (first[0] % side == second[0] % side, "places, left and right"),
        ((first[1] == second[1]) & (0 < flip < 1), "mirrored ones"),
    ):
        if bool(same.all()):
            judge.no(
                seen=f"a second call with the same images gave the same {drawn}", expected="others"
            )


def _judge_shared(places: Tensor, mirrored: Tensor, pad: int, flip: float, judge: Judge) -> None:
    """Judge whether images near each other, or half a batch apart, have draws of their own."""
    side, n = 2 * pad + 1, len(places)
    for draws, chance, way in (
        (places // side, 1 / side, "cut as far down as"),
        (places % side, 1 / side, "cut as far to the right as"),
        (mirrored, flip**2 + (1 - flip) ** 2, "mirrored or not, as"),
    ):
        for apart in (1, n // 2):
            alike = float((draws[apart:] == draws[:-apart]).float().mean())
            if alike > chance + 6 * math.sqrt(chance * (1 - chance) / (n - apart)) + 1e-9:
                seen = f"{alike:.0%} are {way} the image {apart} before in the batch"
                judge.no(seen=seen, expected=f"about {chance:.0%}")


EXERCISE = Exercise(
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
        "one-offset": "The whole batch was moved by the same offset. Each image needs its own draw.",
        "one-coin": "No image of a call was mirrored differently from the others. Each image tosses a coin of its own.",
        "waits": "The host needs a number out of a tensor here, as `.item()`, an `if` and an index of booleans do. On a GPU it would have to wait for it.",
        "made-on-the-host": "The images are on a device, and something that you made was on the host: it had to "
        "be carried across. Say `device=images.device` wherever a tensor is made.",
        "one-by-one": "The number of operations grows with the batch: somewhere there is a loop over images.",
    },
)
