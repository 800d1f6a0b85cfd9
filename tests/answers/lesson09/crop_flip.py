"""Known answers to 09.crop_flip."""

from __future__ import annotations

import torch
from torch.nn import functional as F

from course_lessons.lesson09.crop_flip import crop_flip
from course_utils.exercises.edited import edited


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


def _crop_skewed(images, pad, flip):
    place = torch.randint(2 * pad + 2, (2, len(images))).clamp(max=2 * pad)
    windows = F.pad(images, (pad,) * 4)
    windows = windows.unfold(2, images.shape[2], 1).unfold(3, images.shape[3], 1)
    cut = windows[torch.arange(len(images)), :, place[0], place[1]]
    return torch.where(torch.rand(len(images), 1, 1, 1) < flip, cut.flip(3), cut)


def _crop_seeded_apart(images, pad, flip):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return crop_flip(images, pad, flip)


def _crop_rows_by_turns(images, pad, flip):
    n, _, height, width = images.shape
    windows = F.pad(images, (pad,) * 4).unfold(2, height, 1).unfold(3, width, 1)
    turn, left = torch.arange(n), torch.randint(2 * pad + 1, (n,))
    cut = windows[turn, :, turn % (2 * pad + 1), left]
    return torch.where(torch.rand(n, 1, 1, 1) < flip, cut.flip(3), cut)


def _crop_by_indexing(images, pad, flip):
    n, channels, height, width = images.shape
    device = images.device
    padded = F.pad(images, (pad,) * 4)
    top = torch.randint(0, 2 * pad + 1, (n, 1), device=device)
    left = torch.randint(0, 2 * pad + 1, (n, 1), device=device)
    rows = top + torch.arange(height, device=device)
    columns = left + torch.arange(width, device=device)
    mirrored = torch.rand(n, 1, device=device) < flip
    columns = torch.where(mirrored, columns.flip(1), columns)
    return padded[
        torch.arange(n, device=device)[:, None, None, None],
        torch.arange(channels, device=device)[None, :, None, None],
        rows[:, None, :, None],
        columns[:, None, None, :],
    ]


def _crop_by_gather(images, pad, flip):
    n, channels, height, width = images.shape
    device = images.device
    padded = images.new_zeros(n, channels, height + 2 * pad, width + 2 * pad)
    padded[:, :, pad : pad + height, pad : pad + width] = images
    place = torch.rand(n, 2, device=device).mul(2 * pad + 1).long()
    rows = (place[:, :1] + torch.arange(height, device=device))[:, None, :, None]
    columns = (place[:, 1:] + torch.arange(width, device=device))[:, None, None, :]
    cut = padded.gather(2, rows.expand(n, channels, height, width + 2 * pad))
    cut = cut.gather(3, columns.expand(n, channels, height, width))
    coin = torch.bernoulli(torch.full((n, 1, 1, 1), float(flip), device=device)).bool()
    return torch.where(coin, cut.flip(-1), cut)


_FIRST = "n, _, height, width = images.shape"
_PLACE = "torch.randint(2 * pad + 1, (2, n), device=images.device)"
WRONG = {
    "one-offset": (_crop_with(top="one"), lambda images, pad, flip: images),
    "diagonal": _crop_with(same=True),
    "missing-places": _crop_with(edge=0),
    "one-coin": _crop_with(coin="one"),
    "flip-share": _crop_with(coin="inverted"),
    "upside-down-images": _crop_with(axis=2),
    "no-border": (_crop_by_rolling, lambda images, pad, flip: images + 1),
    "same-again": (
        edited(crop_flip, {_FIRST: f"torch.manual_seed(0)\n{_FIRST}"}),
        _crop_seeded_apart,
    ),
    "same-places": (_crop_by_turns, _crop_rows_by_turns),
    "same-mirrored": _crop_first_mirrored,
    "seeded": edited(crop_flip, {_FIRST: f"torch.seed()\n{_FIRST}"}),
    "one-by-one": _crop_one_by_one,
    "waits": _crop_by_masks,
    "made-on-the-host": (
        lambda images, pad, flip: crop_flip(images.cpu(), pad, flip).to(images.device),
        edited(crop_flip, {_PLACE: "torch.randint(2 * pad + 1, (2, n)).to(images.device)"}),
    ),
    "returned-nothing": lambda images, pad, flip: None,
    "unfair": _crop_skewed,
    "other-shape": _crop_as_float,
}
RIGHT = {"by indexing": _crop_by_indexing, "by gather": _crop_by_gather}
