"""Known wrong answers to 09.crop_flip, by the diagnosis that each must get."""

from __future__ import annotations

import torch
from torch.nn import functional as F

from course_lessons.lesson09.crop_flip import crop_flip


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


WRONG = {
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
}
