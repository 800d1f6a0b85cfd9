"""Known wrong answers to 08.train_logged, by the diagnosis that each must get."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.nn import functional as F

from course_lessons.lesson08.train_logged import train_logged


def _logged_with(
    read: Callable[..., Any] = lambda loss, rows: loss.detach() * rows,
    clock_first: bool = False,
    reset: bool = True,
    tail: bool = True,
    by_rows: bool = True,
) -> Callable[..., Any]:
    def train_logged(model, batches, optimizer, every, clock, log):
        total, samples, weight, begin = 0, 0, 0, clock()
        for step, (x, y) in enumerate(batches, 1):
            loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += read(loss, len(y) if by_rows else 1)
            samples += len(y)
            weight += len(y) if by_rows else 1
            if step % every == 0 or (tail and step == len(batches)):
                early = clock()
                mean = float(total) / weight
                now = early if clock_first else clock()
                log(step, mean, samples / (now - begin))
                if reset:
                    total, samples, weight, begin = 0, 0, 0, now

    return train_logged


def _logged_last_loss(model, batches, optimizer, every, clock, log):
    last: list[Any] = []
    model.register_forward_hook(lambda _, args, out: last.append((args[0], out)))

    def instead(step, mean, rate):
        log(step, _loss_of(last[-1], batches[step - 1]), rate)

    train_logged(model, batches, optimizer, every, clock, instead)


def _loss_of(seen: Any, batch: Any) -> float:
    return F.cross_entropy(seen[1], batch[1]).item()


WRONG = {
    "waits-each-step": _logged_with(read=lambda loss, rows: loss.item() * rows),
    "launch-rate": _logged_with(clock_first=True),
    "since-start": _logged_with(reset=False),
    "mean-of-means": _logged_with(by_rows=False),
    "no-tail": _logged_with(tail=False),
    "last-loss": _logged_last_loss,
}
