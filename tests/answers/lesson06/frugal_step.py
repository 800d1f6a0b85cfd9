"""Known wrong answers to 06.frugal_step, by the diagnosis that each must get."""

from __future__ import annotations

from torch.utils.checkpoint import checkpoint

from course_lessons.lesson06.frugal_step import (
    ROWS,
    frugal_in_parts,
    frugal_last_part,
    frugal_mean_of_means,
    frugal_piling_up,
    frugal_summed,
    plain_step,
    share,
)


def _frugal_many_steps(model, x, y, loss_fn, optimizer):
    total = 0.0
    for rows, labels in zip(x.chunk(4), y.chunk(4), strict=True):
        optimizer.zero_grad()
        loss = loss_fn(model(rows), labels) * len(rows) / len(x)
        loss.backward()
        optimizer.step()
        total += loss.detach()
    return total


def _frugal_quarter(model, x, y, loss_fn, optimizer):
    return plain_step(model, x[: ROWS // 4], y[: ROWS // 4], loss_fn, optimizer)


_frugal_crumbs = frugal_in_parts(16, share)


def _frugal_with_graph(model, x, y, loss_fn, optimizer):
    optimizer.zero_grad()
    for block in model:
        x = checkpoint(block, x, use_reentrant=False)
    loss = loss_fn(x, y)
    loss.backward()
    optimizer.step()
    return loss


WRONG = {
    "does-not-fit": plain_step,
    "too-dear": _frugal_crumbs,
    "summed": frugal_summed,
    "mean-of-means": frugal_mean_of_means,
    "piles-up": frugal_piling_up,
    "many-steps": _frugal_many_steps,
    "last-part": frugal_last_part,
    "left-out": _frugal_quarter,
    "keeps-graph": _frugal_with_graph,
}
