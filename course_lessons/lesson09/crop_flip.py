"""A random crop for each image, all at once."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

import simgpu
from course_language import word
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
                    "other-shape",
                    seen=f"{tuple(got.shape)}, {got.dtype}",
                    expected=f"{tuple(images.shape)}, {dtype}",
                )
            calls.append(_read_crops(crops, got, images, judge))

            def again(images=images, crops=crops, pad=pad, flip=flip):
                return [
                    _read_crops(crops, answer(images, pad, flip), images, judge) for _ in range(8)
                ]

            _judge_spread(*calls[-1], pad, flip, judge, again)
        _judge_second(*calls, pad, flip, judge)
        _judge_shared(*calls[-1], pad, flip, judge)
        if torch.initial_seed() != _SEED + seed:
            judge.no("seeded", seen="torch's random numbers began anew", expected="they go on")
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
            "result-elsewhere",
            seen=f"a result on {got.device}",
            expected="on sim, as the images",
        )
    if copies := asked.copies_to_host:
        judge.no("through-the-host", seen=f"{copies} copies to the host", expected="no copies")
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


def _read_crops(crops: Tensor, got: Tensor, images: Tensor, judge: Judge) -> tuple[Tensor, Tensor]:
    """Return for each image which crop it is, and whether it is mirrored."""
    hits = found(crops, got).flatten(0, 1)
    off = ~hits.any(0)
    if off.any():
        first = int(off.nonzero()[0])
        judge.no(
            _kind_of_fault(crops[:, :, off], got[off], crops, images, judge),
            seen=f"image {first}: {got[first, :2].tolist()} (rows and columns, numbered from 1)",
            expected="a window of the image with a border of zeros",
        )
    which = hits.float().argmax(0)
    return which // 2, which % 2 == 1


def _kind_of_fault(own: Tensor, got: Tensor, crops: Tensor, images: Tensor, judge: Judge) -> str:
    """Return what is the matter with images that are no crops of their own."""
    of_the_number = (got[:, 2].flatten(1).amax(1).long() - 1).clamp(0, len(images) - 1)
    pixels = own == got
    for diagnosis, alike in (
        ("upside-down-images", found(own, got.flip(2))),
        ("channels-mirrored", found(own, got.flip(1))),
        ("coin-in-parts", pixels.any(1).flatten(2).all(2)[:, None]),
        ("channels-apart", pixels.flatten(4).all(4).flatten(0, 1).any(0).all(1)[None, None]),
        ("other-image", found(crops[:, :, of_the_number], got)),
        ("no-border", (pixels | (own == 0)).flatten(3).all(3)),
    ):
        if alike.flatten(0, 1).any(0).all():
            return diagnosis
    return "no-crop"


def _judge_spread(
    places: Tensor, mirrored: Tensor, pad: int, flip: float, judge: Judge, again: Callable[[], Any]
) -> None:
    side = 2 * pad + 1
    top, left = places // side, places % side
    counts = torch.bincount(places, minlength=side * side)
    fair = len(places) / side**2
    seen = f"different places in {len(places)} images: {int((counts > 0).sum())}"
    ways = len(top.unique()), len(left.unique())
    if ways == (1, 1):
        still = all(bool((p == side * side // 2).all()) for p, _ in [(places, mirrored), *again()])
        judge.no("never-moved" if still else "one-offset", seen=seen, expected=f"{side * side}")
    for diagnosis, guilty in (
        ("one-way", 1 in ways),
        ("diagonal", bool((top == left).all())),
        ("missing-places", int(counts.min()) == 0),
        ("unfair", bool(((counts - fair).abs() > 6 * math.sqrt(fair)).any())),
    ):
        if guilty:
            some = f"{counts.tolist()} images a place" if diagnosis == "unfair" else seen
            judge.no(diagnosis, seen=some, expected=f"about {fair:.0f} in each of {side * side}")
    share, spread = float(mirrored.float().mean()), math.sqrt(flip * (1 - flip))
    if share in (0.0, 1.0) and 0 < flip < 1:
        shares = {float(coins.float().mean()) for _, coins in again()} | {share}
        diagnosis = {0.0: "never-mirrored", 1.0: "always-mirrored"}[share]
        judge.no(
            diagnosis if len(shares) == 1 else "one-coin",
            seen=f"{share:.0%} mirrored",
            expected=f"about {flip:.0%}",
        )
    if abs(share - flip) > 5 * spread / math.sqrt(len(places)) + 1e-9:
        judge.no("flip-share", seen=f"{share:.0%} mirrored", expected=f"about {flip:.0%}")
    for way, where in (("places down", top), ("places to the right", left)):
        for at in range(side):
            coins = mirrored[where == at].float()
            if abs(float(coins.mean()) - flip) > 6 * spread / math.sqrt(len(coins)) + 1e-9:
                judge.no(
                    "tied-coin",
                    seen=f"{coins.mean():.0%} mirrored of those cut {at} {way}",
                    expected=f"about {flip:.0%}",
                )


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
    coins = bool((first[1] == second[1]).all()) and 0 < flip < 1
    for diagnosis, seen in (
        ("same-again", down and right and coins and word("crops")),
        ("same-places", down and "places, up and down"),
        ("same-places", right and "places, left and right"),
        ("same-mirrored", coins and "mirrored ones"),
    ):
        if seen:
            judge.no(
                diagnosis,
                seen=f"a second call with the same images gave the same {seen}",
                expected="others",
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
                judge.no("shared-draw", seen=seen, expected=f"about {chance:.0%}")


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
        "other-shape": "Shape and dtype of the batch must stay as they are.",
        "no-crop": "An image is none of the windows that the task allows.",
        "no-border": "Where the border should be, there are other numbers than 0.",
        "upside-down-images": "The images were mirrored top to bottom. Which dimension is the width?",
        "channels-mirrored": "The channels were put in reverse order. Which dimension is the width?",
        "coin-in-parts": "Part of an image was mirrored, and part of it was not: one coin decides for a whole image.",
        "channels-apart": "The channels of an image were cut at different places. An image has one place for all of them.",
        "other-image": "At an image's place in the batch there is now another image.",
        "never-moved": "No image was moved: every window is the one in the middle.",
        "one-offset": "The whole batch was moved by the same offset. Each image needs its own draw.",
        "one-way": "The images move along one dimension only. Draw a place for both.",
        "diagonal": "Every image moves as far down as it moves to the right: one draw was used for both.",
        "missing-places": "Some places never come. A border of `pad` on both sides leaves 2·pad + 1 places each "
        "way, the first and the last included.",
        "unfair": "All places come, but not equally often.",
        "one-coin": "One coin was tossed for all: some calls mirror the whole batch, the others none of it.",
        "never-mirrored": "No image was ever mirrored.",
        "always-mirrored": "Every image was mirrored, every time.",
        "flip-share": "The share of mirrored images is not the probability that was asked for.",
        "tied-coin": "Whether an image is mirrored goes with where it was cut. Place and coin need a draw each.",
        "same-again": "Called twice, it does the same to the same images. Is a seed set inside? Then every epoch has the same crops.",
        "same-places": "Called again, each image moves as far as before, at least one way. Each call needs draws of its own.",
        "same-mirrored": "In each call the same images are mirrored. Each image tosses a coin of its own, every time.",
        "shared-draw": "Images share a draw. Each image needs a place and a coin of its own.",
        "seeded": "Your function starts torch's random numbers from the beginning, and with them those of the whole program.",
        "waits": "A number is read out of a tensor, by `.item()`, `int()`, `if` and the like. On a GPU the host would have "
        "to wait for it.",
        "waits-for-hits": "The size of a result depends on how many hits a mask has. On a GPU the host would have to wait "
        "to know it.",
        "result-elsewhere": "Your result is on another device than the images.",
        "through-the-host": "The images are on a device, and something was carried from there to the host.",
        "made-on-the-host": "The images are on a device, and something that you made was on the host: it had to "
        "be carried across. Say `device=images.device` wherever a tensor is made.",
        "one-by-one": "The number of operations grows with the batch: somewhere there is a loop over images.",
    },
)
