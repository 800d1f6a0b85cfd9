"""Drawings of lesson 03."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
import torch
from matplotlib.axes import Axes

from course_language import _, ngettext
from course_utils.plots import BLUE, ORANGE, log_ticks, present
from course_utils.timing import Measurement, seconds

_GREY = "#777777"


def first_digits(images: torch.Tensor, labels: torch.Tensor) -> None:
    """Draw the first sixteen images, each below its label.

    Parameters
    ----------
    images, labels
        Shapes (n, 28, 28) and (n,), on the CPU.
    """
    fig, axes = plt.subplots(2, 8, figsize=(8, 2.4), layout="constrained")
    for ax, image, label in zip(axes.flat, images, labels.tolist(), strict=False):
        _digit(ax, image, str(label))
    present(fig, _("Sixteen handwritten digits, each with its label."))


def training(losses: Sequence[float], every: int, passes: Sequence[float], steps: int) -> None:
    """Draw the loss during a training, and below it the validation accuracy after each pass.

    Parameters
    ----------
    losses
        The training loss, each the mean of ``every`` steps.
    every
        How many steps one loss stands for.
    passes
        The validation accuracy after each pass, from 0 to 1.
    steps
        The number of steps in all.
    """
    fig, (above, below) = plt.subplots(2, 1, sharex=True, figsize=(7.2, 4.8), layout="constrained")
    above.plot([every * (i + 1) for i in range(len(losses))], losses, color=BLUE)
    above.set(yscale="log", ylabel=_("training loss,\nlogarithmic"))
    log_ticks(above.yaxis)
    ends = [steps * (i + 1) / len(passes) for i in range(len(passes))]
    below.plot(ends, [100 * share for share in passes], "o-", color=ORANGE)
    for step, share in zip(ends, passes, strict=True):
        below.annotate(f"{share:.1%}", (step, 100 * share), (0, -14), textcoords="offset points", ha="center")
    lowest = 100 * min(passes)
    below.set(xlabel=_("step"), ylabel=_("validation\naccuracy, %"), xlim=(0, 1.05 * steps))
    below.set_ylim(lowest - max(0.45 * (100 - lowest), 0.5), 100)
    for ax in (above, below):
        for step in ends:
            ax.axvline(step, color=_GREY, linewidth=0.8, linestyle=":")
    each = ", ".join(f"{share:.1%}" for share in passes)
    present(
        fig,
        _(
            "Above, the training loss falls from {first:.2g} to {last:.2g}. Below, the validation accuracy "
            "after each pass: {each}."
        ).format(first=losses[0], last=losses[-1], each=each),
    )


def wrong_digits(images: torch.Tensor, labels: torch.Tensor, guesses: torch.Tensor, most: int = 16) -> None:
    """Draw the first digits that a network got wrong, each with its label and the guess.

    Parameters
    ----------
    images, labels, guesses
        Shapes (n, 28, 28), (n,) and (n,).
    most
        How many are drawn at most.
    """
    wrong, total = (guesses != labels).nonzero().flatten(), len(labels)
    images, labels, guesses = (part[wrong].cpu() for part in (images, labels, guesses))
    drawn = min(most, len(wrong))
    fig, axes = plt.subplots(2, most // 2, figsize=(8, 3.2), layout="constrained")
    for ax in axes.flat:
        ax.set_axis_off()
    pairs = list(zip(labels[:drawn].tolist(), guesses[:drawn].tolist(), strict=True))
    for ax, image, (label, guess) in zip(axes.flat, images, pairs, strict=False):
        _digit(ax, image, _("{label}\nread as {guess}").format(label=label, guess=guess), size=9)
    count = ngettext(
        "{count} of {total} digits was read wrongly",
        "{count} of {total} digits were read wrongly",
        len(wrong),
    ).format(count=len(wrong), total=total)
    fig.suptitle(count, x=0.01, ha="left", fontsize=11)
    each = ", ".join(_("{label} as {guess}").format(label=label, guess=guess) for label, guess in pairs)
    present(fig, _("{count}. Drawn: {each}.").format(count=count, each=each))


def _digit(ax: Axes, image: torch.Tensor, title: str, size: float | None = None) -> None:
    """Draw a digit under its title."""
    ax.imshow(image.numpy(), cmap="gray_r")
    ax.set_title(title, loc="center", fontsize=size)
    ax.set_axis_off()


def running_means(before: torch.Tensor, after: torch.Tensor) -> None:
    """Draw a BatchNorm layer's running mean in each channel, before and after it saw other data.

    Parameters
    ----------
    before, after
        The running means, shape (channels,).
    """
    fig, ax = plt.subplots(figsize=(7.2, 3.2), layout="constrained")
    channels, old, new = range(len(before)), before.tolist(), after.tolist()
    ax.vlines(channels, old, new, color=_GREY, linewidth=1)
    ax.plot(channels, old, "o", color=BLUE, label=_("before the negatives"))
    ax.plot(channels, new, "s", color=ORANGE, label=_("after them"))
    ax.axhline(0, color=_GREY, linewidth=0.8)
    ax.set(xlabel=_("channel of the first BatchNorm layer"), ylabel=_("running mean"))
    fig.legend(loc="outside upper center", ncols=2)
    furthest = max(abs(b - a) for a, b in zip(old, new, strict=True))
    present(
        fig,
        _(
            "The running mean of each of {n} channels, as a dot before the negatives and a square after "
            "them. The largest change is {furthest:.2g}."
        ).format(n=len(old), furthest=furthest),
    )


def loading_times(loading: Mapping[str, Measurement], training: Measurement) -> None:
    """Draw the time to load some batches, in several ways, as bars with quartiles.

    The label of each bar says how much that is of the time to train on these batches.

    Parameters
    ----------
    loading
        A measurement for each name, from top to bottom, all of one machine.
    training
        The training on the same batches, there too.
    """
    fig, ax = plt.subplots(figsize=(7.2, 0.5 * len(loading) + 1.3), layout="constrained")
    rows, measured = range(len(loading)), list(loading.values())
    medians = [1e3 * m.median for m in measured]
    spread = [[1e3 * (m.median - m.q1) for m in measured], [1e3 * (m.q3 - m.median) for m in measured]]
    ax.barh(rows, medians, 0.55, xerr=spread, color=BLUE, error_kw={"capsize": 3, "ecolor": "#333333"})
    shares = [_share(m.median / training.median) for m in measured]
    for row, m, share in zip(rows, measured, shares, strict=True):
        words = _("  {time}, {share} of the training").format(time=seconds(m.median), share=share)
        ax.text(1e3 * m.q3, row, words, va="center")
    ax.set_yticks(rows, list(loading))
    ax.set(ylim=(len(loading) - 0.5, -0.5), xlim=(0, 1.75 * max(1e3 * m.q3 for m in measured)))
    kind, device = _(training.kind), training.device
    ax.set_xlabel(_("time, ms (median and quartiles, {kind} on {device})").format(kind=kind, device=device))
    title = _("The training on the same digits takes {time}").format(time=seconds(training.median))
    ax.set_title(title, fontsize=10.5)
    ax.grid(axis="y", visible=False)
    each = ", ".join(
        _("{name} {time}").format(name=name, time=seconds(m.median)) for name, m in loading.items()
    )
    present(fig, _("{title}. To load them takes, as bars: {each}.").format(title=title, each=each))


def _share(part: float) -> str:
    """Return a share of a whole as text: a percentage, or a multiple."""
    if part >= 2:
        return f"{part:.1f}×"
    return f"{part:.0%}" if part >= 0.01 else _("under 1%")


def gradient_errors(errors: Mapping[str, float]) -> None:
    """Draw relative errors of gradients as bars; ``errors`` has one for each name, from top to bottom."""
    fig, ax = plt.subplots(figsize=(7.2, 0.5 * len(errors) + 1.0), layout="constrained")
    rows, percent = range(len(errors)), [100 * error for error in errors.values()]
    ax.barh(rows, percent, 0.55, color=BLUE)
    for row, value in zip(rows, percent, strict=True):
        words = f"  {value:.0f} %" if value > 0.1 else _("  0 %, but for rounding")
        ax.text(value, row, words, va="center")
    ax.set_yticks(rows, list(errors))
    ax.set(ylim=(len(errors) - 0.5, -0.5), xlim=(0, 1.25 * max(percent)))
    ax.set_xlabel(_("length of the error, % of the gradient's length"))
    ax.grid(axis="y", visible=False)
    each = "; ".join(f"{name}: {error:.2g}" for name, error in errors.items()).replace("\n", " ")
    present(fig, _("Relative errors of gradients, as bars: {each}.").format(each=each))
