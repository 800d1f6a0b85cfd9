"""Known answers to 10.crop_flip."""

import torch
from torch.nn import functional as F

from course_lessons.lesson10.crop_flip import crop_flip


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


def _crop_first_mirrored(images, pad, flip):
    """Mirror the first images of the batch, not random ones."""
    cut = crop_flip(images, pad, 0.0)
    count = round(len(cut) * flip)
    return torch.cat([cut[:count].flip(3), cut[count:]])


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


def _crop_with_masks_for_coins(images, pad, flip):
    """Mirror by a boolean mask, whose size the host must wait for."""
    cut = crop_flip(images, pad, 0.0)
    coins = torch.rand(len(images), device=images.device) < flip
    cut[coins] = cut[coins].flip(3)
    return cut


_PLACE = "torch.randint(2 * pad + 1, (2, n), device=images.device)"
_COIN = "torch.rand((n, 1, 1, 1), device=images.device) < flip"
WRONG = {
    "one-offset": {_PLACE: f"{_PLACE}[:, :1].expand(2, n)"},
    "one-coin": {"(n, 1, 1, 1)": "(1, 1, 1, 1)"},
    "waits": (
        {_COIN: f"{_COIN}\nif not mirrored.any():\n    return cut"},
        _crop_with_masks_for_coins,
    ),
    "made-on-the-host": {_PLACE: "torch.randint(2 * pad + 1, (2, n)).to(images.device)"},
    "one-by-one": _crop_one_by_one,
    "wrong-value": (_crop_first_mirrored, {_COIN: f"({_COIN})[torch.arange(n) // 2]"}),
}
RIGHT = {"by indexing": _crop_by_indexing, "by gather": _crop_by_gather}
