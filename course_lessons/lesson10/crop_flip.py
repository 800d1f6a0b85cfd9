"""A random crop for each image, all at once."""

import math

import torch
from torch import Tensor
from torch.nn import functional as F

import simgpu
from course_language import _
from course_lessons.lesson10.checking import Counter, candidates, find_crops, numbered
from course_lessons.shared import memory
from course_lessons.shared.checking import Operations
from course_utils.exercises import Exercise


def crop_flip(images, pad, flip):
    n, _, height, width = images.shape
    windows = F.pad(images, (pad, pad, pad, pad)).unfold(2, height, 1).unfold(3, width, 1)
    top, left = torch.randint(2 * pad + 1, (2, n), device=images.device)
    cut = windows[torch.arange(n, device=images.device), :, top, left]
    mirrored = torch.rand((n, 1, 1, 1), device=images.device) < flip
    return torch.where(mirrored, cut.flip(3), cut)


_CASES = (
    ((500, 6, 5), torch.uint8, 1, 0.5),
    ((600, 4, 6), torch.float32, 2, 0.0),
    ((200, 5, 5), torch.float32, 1, 1.0),
    ((500, 5, 4), torch.uint8, 1, 0.25),
)


def _check_answer(answer, judge):
    """Check crops and their frequencies, number of operations, waits and copies."""
    for seed, (shape, dtype, pad, flip) in enumerate(_CASES, 905_117):  # no seed that anybody takes
        images = numbered(*shape, dtype)
        crops = candidates(images, pad)
        torch.manual_seed(seed)
        calls = []
        for __ in range(2):
            got = judge.is_a(answer(images, pad, flip), Tensor, _("a tensor"))
            form, wanted = (f"{tuple(t.shape)}, {t.dtype}" for t in (got, images))
            judge.expect("shape and dtype", form, wanted)
            calls.append(find_crops(crops, got, judge))
        judge.expect(_("the seed afterwards"), torch.initial_seed(), seed)
        _judge_frequencies(calls, pad, flip, judge)
    few, many = Counter(), Counter()
    for counter, n in ((few, 8), (many, 40)):
        images = numbered(n, 6, 6, torch.uint8)
        with Operations(counter.note):
            answer.__wrapped__(images, 2, 0.5)  # without what the checker does with the arguments
    if many.count >= few.count + 32:
        seen = _("{count} operations for 8 images, {many_count} for 40").format(
            count=few.count, many_count=many.count
        )
        judge.no("one-by-one", seen=seen, expected=_("as many for 40 as for 8"))
    needed = _("operations whose result the host must know before it goes on")
    judge.expect(needed, many.waits, 0, "waits")
    if not simgpu.unavailable_reason():
        with memory.temporary_device("1 GB") as device:
            images = numbered(8, 6, 6, torch.uint8).to(device)
            with simgpu.count() as counters:
                got = answer.__wrapped__(images, 2, 0.5)
        judge.expect(_("the result's device"), got.device.type, "sim")
        judge.expect(_("copies to the host"), counters.copies_to_host, 0)
        judge.expect(_("copies to the device"), len(counters.copies), 0, "made-on-the-host")


def _judge_frequencies(calls, pad, flip, judge):
    """Judge whether offsets and mirroring in two calls have the right frequencies and are independent."""
    side = 2 * pad + 1

    def judge_share(hits, chance, what, diagnosis="wrong-value"):
        share = float(hits.float().mean())
        most = 6 * math.sqrt(chance * (1 - chance) / len(hits)) + 1e-9
        if abs(share - chance) > most or (chance and not share):
            about = _("about {chance:.0%}").format(chance=chance)
            judge.no(diagnosis, seen=f"{share:.0%} {what}", expected=about)

    for top, left, mirrored in calls:
        place = top * side + left
        one_offset = len(place.unique()) == 1 and int(place[0]) != side * side // 2
        for at in range(side * side):
            what = _("cut {down} down, {right} right").format(down=at // side, right=at % side)
            judge_share(place == at, 1 / side**2, what, "one-offset" if one_offset else "wrong-value")
        one_coin = 0 < flip < 1 and len(mirrored.unique()) == 1
        judge_share(mirrored, flip, "mirrored", "one-coin" if one_coin else "wrong-value")
        for way, place in (("down", top), (_("to the right"), left)):
            for at in range(side):
                what = _("mirrored of those cut {at} {way}").format(at=at, way=way)
                judge_share(mirrored[place == at], flip, what)
    chances = (1 / side, 1 / side, flip**2 + (1 - flip) ** 2)
    names = ("down", _("to the right"), "mirrored")
    for first, second, chance, what in zip(*calls, chances, names, strict=True):
        again = _("in a second call as in the first ({what})").format(what=what)
        judge_share(first == second, chance, again)
        for apart in (1, len(second) // 2):
            before = _("as the image {apart} before in the batch ({what})").format(apart=apart, what=what)
            judge_share(second[apart:] == second[:-apart], chance, before)


EXERCISE = Exercise(
    id="10.crop_flip",
    title="A random crop for each image, all at once",
    level=3,
    minutes=20,
    task="""
Write `crop_flip(images, pad, flip)`. It takes a batch of images, `(n, channels, height, width)`, on any
device and of any dtype. It puts a border of `pad` zeros around each image, cuts a window of the old size out
of it at a random place, and mirrors that left to right with probability `flip`. Return the new batch, on the
same device and with the same shape and dtype. **Each image** gets a place and a coin of its own, and all
places are equally likely. Don't loop over images, don't let the host wait for the device, and copy nothing
to it.
""",
    hints=(
        "Pad the images first. How many windows of the old size does one padded image then hold? "
        "`tensor.unfold(dim, size, 1)` shows all windows along one dimension. It's a view, so it copies "
        "nothing.",
        "After two `unfold`s, index tensors of n numbers pick one window for each image, and `:` keeps all "
        "channels. There are 2·pad + 1 places each way, and `torch.randint` can draw them all at once. For "
        "the mirror, toss n coins and let `torch.where` choose. Make every new tensor on `images.device`.",
        "Here each of two signals gets a window of its own. Then a mask that fits the shape lets only "
        "the first change.\n"
        """
```python
signals = torch.arange(24).reshape(2, 12)
windows = signals.unfold(1, 5, 1)  # 8 windows of 5 numbers for each signal
first = torch.tensor([0, 7])
cut = windows[torch.arange(2), first]
print(cut.tolist())  # [[0, 1, 2, 3, 4], [19, 20, 21, 22, 23]]
loud = torch.tensor([[True], [False]])
print(torch.where(loud, 10 * cut, cut))
```""",
    ),
    reference=crop_flip,
    check_answer=_check_answer,
    why="The same handful of operations serves 8 images or 8,000. The work for one image is tiny, so what "
    "takes the time in a loop is asking for it image by image.",
    diagnoses={
        "one-offset": "The whole batch was moved by the same offset. Each image needs its own draw.",
        "one-coin": "No image of a call was mirrored differently from the others. Each image tosses a coin "
        "of its own.",
        "waits": "The host needs a number out of a tensor here, as `.item()`, an `if` and an index of "
        "booleans do. On a GPU it would have to wait for it.",
        "made-on-the-host": "The images are on a device, and something that you made was on the host: it had "
        "to be carried across. Say `device=images.device` wherever a tensor is made.",
        "one-by-one": "The number of operations grows with the batch: somewhere there is a loop over images.",
    },
)
