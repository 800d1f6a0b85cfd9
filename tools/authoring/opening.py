"""Draw the picture that lesson 00 opens with, and put it into the lesson.

``python -m tools.authoring.opening`` trains the lesson's network on the simulated T4, with and without a
wait, draws both timelines, and replaces the picture in the notebook. The picture has no words, so it is the
same in each language. It is in the cell itself: Colab shows no picture from a file beside the notebook.
"""

from __future__ import annotations

import base64
import io
import json
import re
from pathlib import Path

import matplotlib.pyplot as plt
import torch
from PIL import Image
from torch import nn
from torch.nn import functional as F

import simgpu
from course_lessons.lesson00.drawings import draw_lanes
from course_lessons.lesson00.loading import batches
from course_lessons.lesson00.watching import Watched, watch
from course_utils import load_digits, plots
from course_utils.timing import seconds

NOTEBOOK = Path(__file__).parents[2] / "notebooks" / "00_start_here.ipynb"
LINES = ("total += loss.item()", "total += loss.detach()")
"""The last line of the loop, with and without a wait: the titles of the two timelines."""


def two_epochs(device: torch.device) -> dict[str, Watched]:
    """Train the lesson's network on a device with each of the two lines; return what was seen, by line."""
    digits = load_digits()
    torch.manual_seed(0)
    layers = (nn.Linear(784, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10))
    net = nn.Sequential(nn.Flatten(), *layers).to(device)
    optimizer = torch.optim.AdamW(net.parameters())

    def one_epoch(line: str) -> float:
        """Train on each batch once; return the mean loss."""
        total: float | torch.Tensor = 0.0
        for x, y in batches(digits, device):
            x, y = x.to(device), y.to(device)
            loss = F.cross_entropy(net(x / 255), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() if line == LINES[0] else loss.detach()
        return float(total) / 8

    return {line: watch(lambda line=line: one_epoch(line), device) for line in LINES}


def draw(watched: dict[str, Watched]) -> bytes:
    """Draw timelines below each other, with a title in code and a time; return the picture as a PNG file."""
    plots.use_style()
    longest = max(1e3 * seen.seconds for seen in watched.values())
    fig, axes = plt.subplots(len(watched), figsize=(8, 3.1), layout="constrained", sharex=True)
    for ax, (line, seen) in zip(axes, watched.items(), strict=True):
        assert seen.trace
        draw_lanes(ax, seen.trace, longest)
        ax.set_title(line, family="monospace", fontsize=11)
        ax.set_title(seconds(seen.seconds), loc="right", fontsize=12, fontweight="bold")
        ax.grid(visible=False)
        ax.tick_params(axis="both", length=0, labelbottom=False)
        ax.spines[["left", "bottom"]].set_visible(False)
    file = io.BytesIO()
    fig.savefig(file, dpi=120)
    plt.close(fig)
    few_colours = Image.open(file).convert("RGB").quantize(24, dither=Image.Dither.NONE)
    file = io.BytesIO()
    few_colours.save(file, "PNG", optimize=True)
    return file.getvalue()


def main() -> None:
    """Draw the picture and put it into the notebook."""
    picture = draw(two_epochs(simgpu.enable("T4")))
    text = NOTEBOOK.read_text(encoding="utf-8")
    data = "data:image/png;base64," + base64.b64encode(picture).decode()
    text, places = re.subn(r"data:image/png;base64,[\w+/=]*", data, text)
    json.loads(text)
    NOTEBOOK.write_text(text, encoding="utf-8")
    print(f"{len(picture)} bytes, in {places} place of {NOTEBOOK.name}")


if __name__ == "__main__":
    main()
