"""A data set of random images that are transformed one by one: to measure loading time."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import interpolate, pad
from torch.utils.data import Dataset

IMAGES = 1024


class SyntheticImages(Dataset):
    """Random uint8 images that pass through the usual transforms one by one.

    Parameters
    ----------
    work
        ``"light"``: crop 32 × 32 out of a padded 32 × 32 image, flip, normalise. ``"heavy"``: crop
        224 × 224 out of a 256 × 256 image, resize to 32 × 32, change brightness and contrast, flip,
        normalise.
    """

    def __init__(self, work: str) -> None:
        self.heavy = work == "heavy"
        side = 256 if self.heavy else 32
        self.images = torch.randint(256, (256, 3, side, side), dtype=torch.uint8)

    def __len__(self) -> int:
        return IMAGES

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        x = self.images[index % len(self.images)].float() / 255
        if self.heavy:
            top, left = torch.randint(33, (2,)).tolist()
            x = x[None, :, top : top + 224, left : left + 224]
            x = interpolate(x, size=32, mode="bilinear", antialias=True)[0]
            brightness, contrast = (0.8 + 0.4 * torch.rand(2)).tolist()
            x = ((x - x.mean()) * contrast + x.mean()) * brightness
        else:
            top, left = torch.randint(9, (2,)).tolist()
            x = pad(x, (4, 4, 4, 4))[:, top : top + 32, left : left + 32]
        if torch.rand(()) < 0.5:
            x = x.flip(-1)
        return (x - 0.5) / 0.25, index % 10
