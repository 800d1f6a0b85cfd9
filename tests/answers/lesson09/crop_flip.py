"""Known answers to 09.crop_flip."""

import torch
from torch.nn import functional as F

from course_lessons.lesson09.crop_flip import crop_flip


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


def _crop_first_mirrored(images, pad, flip):
    cut = crop_flip(images, pad, 0.0)
    count = round(len(cut) * flip)
    return torch.cat([cut[:count].flip(3), cut[count:]])


def _crop_seeded_apart(images, pad, flip):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return crop_flip(images, pad, flip)


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


def _crop_through_the_host(images, pad, flip):
    return crop_flip(images.cpu(), pad, flip).to(images.device)


def _crop_with_masks_for_coins(images, pad, flip):
    cut = crop_flip(images, pad, 0.0)
    coins = torch.rand(len(images), device=images.device) < flip
    cut[coins] = cut[coins].flip(3)
    return cut


def _crop_channels_apart(images, pad, flip):
    n, channels, height, width = images.shape
    cut = crop_flip(images.reshape(n * channels, 1, height, width), pad, 0.0)
    return cut.reshape(images.shape)


_FIRST = "n, _, height, width = images.shape"
_PLACE = "torch.randint(2 * pad + 1, (2, n), device=images.device)"
_TURN, _SIDE = "torch.arange(n, device=images.device)", "(2 * pad + 1)"
_PADDED = "F.pad(images, (pad, pad, pad, pad))"
_COIN = "torch.rand((n, 1, 1, 1), device=images.device) < flip"
WRONG = {
    "one-offset": (
        {_PLACE: f"{_PLACE}[:, :1].expand(2, n)"},
        {_PLACE: "torch.zeros(2, n, dtype=torch.long)"},
    ),
    "never-moved": (lambda images, pad, flip: images, {_PLACE: "torch.full((2, n), pad)"}),
    "one-way": {_PLACE: f"({_PLACE} * torch.tensor([[1], [0]]))"},
    "diagonal": {_PLACE: f"{_PLACE}[:1].expand(2, n)"},
    "missing-places": ({"pad + 1": "pad"}, {_PLACE: f"1 + {_PLACE.replace('+ 1', '')}"}),
    "one-coin": {"(n, 1, 1, 1)": "(1, 1, 1, 1)"},
    "never-mirrored": {_COIN: "torch.zeros((n, 1, 1, 1), dtype=torch.bool)"},
    "always-mirrored": {_COIN: "torch.ones((n, 1, 1, 1), dtype=torch.bool)"},
    "flip-share": ({_COIN: f"~({_COIN})"}, {_COIN: _COIN.replace("rand(", "randn(")}),
    "tied-coin": {
        f"top, left = {_PLACE}": "draw = torch.rand(n, device=images.device)\n"
        "top = (draw * (2 * pad + 1)).long()\n"
        "left = torch.randint(2 * pad + 1, (n,), device=images.device)",
        _COIN: "(draw < flip).view(n, 1, 1, 1)",
    },
    "upside-down-images": ({"flip(3)": "flip(2)"}, {"flip(3)": "flip((2, 3))"}),
    "channels-mirrored": {"flip(3)": "flip(1)"},
    "coin-in-parts": (
        {_COIN: "torch.rand(images.shape) < flip"},
        {_COIN: "torch.rand((n, 3, 1, 1)) < flip"},
    ),
    "channels-apart": _crop_channels_apart,
    "other-image": (
        {_FIRST: f"images = images[torch.randperm(len(images))]\n{_FIRST}"},
        {"flip(3)": "flip(0)"},
    ),
    "no-border": (
        _crop_by_rolling,
        {_PADDED: "F.pad(images.float(), (pad,) * 4, mode='reflect').to(images.dtype)"},
        {_PADDED: "F.pad(images, (pad,) * 4, value=7)"},
    ),
    "no-crop": lambda images, pad, flip: images + 1,
    "same-again": ({_FIRST: f"torch.manual_seed(0)\n{_FIRST}"}, _crop_seeded_apart),
    "same-places": (
        {_PLACE: f"({_TURN} // {_SIDE} % {_SIDE}, {_TURN} % {_SIDE})"},
        {_PLACE: f"({_TURN} % {_SIDE}, torch.randint({_SIDE}, (n,)))"},
    ),
    "same-mirrored": _crop_first_mirrored,
    "shared-draw": (
        {_PLACE: f"{_PLACE}[:, torch.arange(n) // 2]"},
        {_PLACE: f"{_PLACE}[:, torch.arange(n) % (n // 2)]"},
        {_COIN: f"({_COIN})[torch.arange(n) // 2]"},
    ),
    "seeded": {_FIRST: f"torch.seed()\n{_FIRST}"},
    "one-by-one": _crop_one_by_one,
    "waits": {_COIN: f"{_COIN}\nif not mirrored.any():\n    return cut"},
    "waits-for-hits": (_crop_by_masks, _crop_with_masks_for_coins),
    "through-the-host": _crop_through_the_host,
    "result-elsewhere": lambda images, pad, flip: crop_flip(images.cpu(), pad, flip),
    "made-on-the-host": {_PLACE: "torch.randint(2 * pad + 1, (2, n)).to(images.device)"},
    "returned-nothing": lambda images, pad, flip: None,
    "unfair": {_PLACE: "torch.randint(2 * pad + 2, (2, n)).clamp(max=2 * pad)"},
    "other-shape": {"cut.flip(3), cut)": "cut.flip(3), cut) / 255"},
}
RIGHT = {"by indexing": _crop_by_indexing, "by gather": _crop_by_gather}
