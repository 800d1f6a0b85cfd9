"""Data sets: MNIST digits, which ship with the course, and CIFAR-10, which is downloaded."""

from __future__ import annotations

import zipfile
import zlib
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch.nn import functional as F
from torch.utils.data import Dataset

from course_language import _

from . import content

DIGITS = content.folder() / "data" / "mnist10k.npz"
SPLIT_SEED = 20240229


class Split(NamedTuple):
    """A data set in two parts, each with images ``x`` (n, …) uint8 and labels ``y`` (n,) int64."""

    train_x: torch.Tensor
    train_y: torch.Tensor
    test_x: torch.Tensor
    test_y: torch.Tensor


class DataError(RuntimeError):
    """A data set cannot be loaded; the message says why and what to do."""


def load_digits(test: int = 2000) -> Split:
    """Load the 10,000 MNIST digits that ship with the course; no network is needed.

    The digits are by Y. LeCun, C. Cortes and C. J. C. Burges, under CC BY-SA 3.0 (see
    ``data/DATA_LICENSE``).

    Parameters
    ----------
    test
        The number of images in the test split. The permutation is fixed, so the same number always gives
        the same split.

    Returns
    -------
    Split
        Tensors on the CPU: images (n, 28, 28) uint8 from 0 to 255, labels (n,) int64 from 0 to 9.

    Raises
    ------
    DataError
        If the file is missing or damaged.
    ValueError
        If ``test`` is not between 1 and 9,999.
    """
    try:
        with np.load(DIGITS) as file:
            x, y = torch.from_numpy(file["x"]), torch.from_numpy(file["y"]).long()
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise DataError(
            _("the digits at {digits} cannot be read ({error}); get a fresh copy of the course").format(
                digits=DIGITS, error=error
            )
        ) from error
    if not 0 < test < len(x):
        raise ValueError(
            _("test must be between 1 and {last}, not {test}").format(last=len(x) - 1, test=test)
        )
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(SPLIT_SEED))
    train, held_out = order[test:], order[:test]
    return Split(x[train], y[train], x[held_out], y[held_out])


def load_cifar10(folder: str | Path = "~/.cache/pytorch-gpu-course") -> Split:
    """Load CIFAR-10 through torchvision, downloading 163 MiB the first time.

    Torchvision verifies the archive and shows a progress bar; a damaged file is downloaded again.

    Parameters
    ----------
    folder
        The folder of the downloaded files.

    Returns
    -------
    Split
        Images (50000, 32, 32, 3) and (10000, 32, 32, 3) uint8, labels int64, on the CPU.

    Raises
    ------
    DataError
        If torchvision is not installed, or the download fails.
    """
    try:
        from torchvision.datasets import CIFAR10
    except ImportError as error:
        raise DataError(
            _(
                "CIFAR-10 comes through torchvision, which this Python does not have; "
                "Colab and Kaggle have it. The digits of load_digits() need nothing."
            )
        ) from error
    root = Path(folder).expanduser()
    try:
        train, test = (CIFAR10(root, train=part, download=True) for part in (True, False))
    except (OSError, RuntimeError) as error:
        raise DataError(
            _(
                "CIFAR-10 could not be downloaded to {root} ({error}). Check the network and run the "
                "cell again; the digits of load_digits() need no network."
            ).format(root=root, error=error)
        ) from error
    return Split(
        torch.from_numpy(train.data),
        torch.tensor(train.targets),
        torch.from_numpy(test.data),
        torch.tensor(test.targets),
    )


class OneByOne(Dataset):
    """A map-style data set that crops, flips and normalises one image at a time, as most tutorials do.

    ``images`` is (n, 3, h, w) uint8. ``pad`` is the padding, in pixels, before the random crop, ``flip`` the
    probability of a horizontal flip, and ``mean`` and ``std`` are for values from 0 to 1.
    """

    def __init__(self, images, labels, pad, flip, mean, std):
        self.images, self.labels = images, labels
        self.pad, self.flip, self.mean, self.std = pad, flip, mean, std

    def __len__(self):
        """Return the number of images."""
        return len(self.images)

    def __getitem__(self, index):
        """Return one augmented image, (3, h, w) float32, and its label."""
        image = F.pad(self.images[index], (self.pad,) * 4)
        top, left = torch.randint(2 * self.pad + 1, (2,)).tolist()
        height, width = self.images.shape[2:]
        image = image[:, top : top + height, left : left + width]
        if torch.rand(()) < self.flip:
            image = image.flip(2)
        return (image.float() / 255 - self.mean) / self.std, self.labels[index]
