"""Answers to the problems of lesson 08: right ones of other kinds than the references, and more wrong ones."""

from __future__ import annotations

import contextlib
import pickle
import queue
import re
import threading

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from course_lessons.lesson08.rank_of import rank_of
from course_lessons.lesson08.train_logged import train_logged
from course_utils.devices import synchronize

# --- right ones


def race_with_moved_matrices(sizes, devices, measure):
    def seconds(n, device):
        a, b = torch.randn(n, n).to(device), torch.randn(n, n).to(device)

        def product():
            torch.mm(a, b)

        return measure(product, "product", device=device).median

    found = []
    for n in sizes:
        first, second = seconds(n, devices[0]), seconds(n, devices[1])
        found.append([n, first, second, first / second])
    return found


def memory_line_by_least_squares(make_step, batches, meter):
    def peak(batch):
        step = make_step(batch)
        for _ in range(3):
            meter.reset_peak_memory_stats()
            step()
        return meter.max_memory_allocated()

    table = np.stack([np.ones(len(batches)), batches], axis=1)
    return list(np.linalg.lstsq(table, np.array([peak(n) for n in batches]), rcond=None)[0])


def predictions_from_one_tensor(model, batches, landing, device):
    return torch.cat([model(x).argmax(1) for x in batches]).tolist()


def predictions_by_pieces(model, batches, landing, device):
    rows = [len(x) for x in batches]
    places = landing[: sum(rows)].split(rows)
    for x, place in zip(batches, places, strict=True):
        place.copy_(torch.argmax(model(x), -1), non_blocking=True)
    if device.type != "cpu":
        torch.accelerator.synchronize()
    return [int(k) for k in landing[: sum(rows)]]


def optimizer_steps_by_counting(samples, batch_size, accumulate, epochs, drop_last=False):
    steps = 0
    for _ in range(epochs):
        sizes = [len(part) for part in torch.arange(samples).split(batch_size)]
        sizes = [size for size in sizes if size == batch_size or not drop_last]
        steps += len(range(0, len(sizes), accumulate))
    return steps


def newest_by_pattern(folder, load):
    found = {}
    for file in folder.iterdir():
        if match := re.fullmatch(r"step_(\d+)\.pt", file.name):
            found[int(match[1])] = file
    for step in sorted(found)[::-1]:
        try:
            state = load(found[step])
        except (RuntimeError, EOFError, OSError, pickle.UnpicklingError):
            continue
        return state
    return None


def train_watched_by_a_counter(model, batches, optimizer, every):
    first = torch.full((), len(batches), device=batches[0][0].device)
    for step, (x, y) in enumerate(batches):
        optimizer.zero_grad(set_to_none=False)
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        bad = torch.where(loss.detach().isfinite(), len(batches), step)
        first = torch.minimum(first, bad)
        if (step + 1) % every == 0 or step + 1 == len(batches):
            found = int(first)
            if found < len(batches):
                return found
    return None


def without_sigmoid_in_other_words(model):
    def loss(logits, targets):
        return F.binary_cross_entropy_with_logits(logits, targets)

    return nn.Sequential(*list(model)[:-1]), loss, lambda logits: logits.sigmoid() > 0.5


def two_steps_unscaling_first(model, x, y, loss_fn, optimizers, scaler, dtype):
    model.zero_grad()
    with torch.amp.autocast(x.device.type, dtype):
        loss = loss_fn(model(x), y)
    scaler.scale(loss).backward()
    for optimizer in optimizers:
        scaler.unscale_(optimizer)
    for optimizer in reversed(optimizers):
        scaler.step(optimizer)
    scaler.update()
    return loss.detach().clone()


def steady_without_a_tensor(model, batches, optimizer, device):
    hits = torch.zeros((), dtype=torch.int64, device=device)
    for x, y in batches:
        x, y = x.to(device), y.to(device)
        logits = model(x)
        optimizer.zero_grad()
        F.cross_entropy(logits, y).backward()
        optimizer.step()
        hits += (logits.argmax(1) == y).sum()
    return int(hits)


def steady_in_a_function(model, batches, optimizer, device):
    def step(x, y):
        logits = model(x)
        loss = F.cross_entropy(logits, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        probabilities = logits.detach().softmax(1)
        return (probabilities.argmax(1) == y).sum()

    return sum(step(x.to(device), y.to(device)) for x, y in batches).item()


def fused_by_closures(model, make_optimizer):
    def hook(parameter):
        optimizer = make_optimizer([parameter])

        def update(_):
            optimizer.step()
            parameter.grad = None

        return update

    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.register_post_accumulate_grad_hook(hook(parameter))


def fused_with_one_optimizer(model, make_optimizer):
    optimizer = make_optimizer([p for p in model.parameters() if p.requires_grad])

    def update(parameter):
        optimizer.step()
        parameter.grad = None

    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.register_post_accumulate_grad_hook(update)


def masked_by_where(logits, targets, mask):
    losses = F.cross_entropy(logits, targets.clamp(min=0), reduction="none")
    return torch.where(mask, losses, 0.0).sum() / torch.clamp(mask.sum(), min=1)


def masked_by_product(logits, targets, mask):
    scores = logits.log_softmax(1).gather(1, targets.clamp(min=0)[:, None]).squeeze(1)
    return -(scores * mask).sum() / mask.sum().clamp_min(1)


def logged_by_groups(model, batches, optimizer, every, clock, log):
    step, begin = 0, clock()
    for first in range(0, len(batches), every):
        losses, rows = [], []
        for x, y in batches[first : first + every]:
            losses.append(F.cross_entropy(model(x), y, reduction="sum"))
            rows.append(len(y))
            optimizer.zero_grad()
            (losses[-1] / len(y)).backward()
            optimizer.step()
            step += 1
        mean = float(torch.stack([loss.detach() for loss in losses]).sum()) / sum(rows)
        end = clock()
        log(step, mean, sum(rows) / (end - begin))
        begin = end


def logged_after_a_wait(model, batches, optimizer, every, clock, log):
    total, rows, begin = 0.0, 0, clock()
    for step, (x, y) in enumerate(batches):
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total = total + loss.detach() * y.shape[0]
        rows += y.shape[0]
        if (step + 1) % every and step + 1 < len(batches):
            continue
        if x.device.type != "cpu":
            torch.get_device_module(x.device).synchronize(x.device)
        end = clock()
        log(step + 1, total.item() / rows, rows / (end - begin))
        total, rows, begin = 0.0, 0, end


def prefetch_by_thread(batches, bound):
    waiting, left, end = queue.Queue(bound), threading.Event(), object()

    def put(item):
        while not left.is_set():
            try:
                return waiting.put(item, timeout=0.01)
            except queue.Full:
                continue
        return None

    def load():
        try:
            for batch in batches:
                put((batch, None))
                if left.is_set():
                    return
            put((end, None))
        except Exception as error:  # noqa: BLE001
            put((end, error))

    thread = threading.Thread(target=load, daemon=True)
    thread.start()
    try:
        while (item := waiting.get())[0] is not end:
            yield item[0]
        if item[1] is not None:
            raise item[1]
    finally:
        left.set()
        thread.join()


def rank_by_count(environment):
    wanted = ["RANK", "LOCAL_RANK", "WORLD_SIZE"]
    there = [environment.get(name) for name in wanted]
    if all(value is None for value in there):
        return (0, 0, 1)
    for name in wanted:
        if environment.get(name) is None:
            gone = [name for name in wanted if environment.get(name) is None]
            raise ValueError(f"torchrun sets {gone}, and nothing else has")
    return (int(there[0]), int(there[1]), int(there[2]))


def save_with_two_barriers(model, dist, save):
    dist.barrier()
    if not dist.get_rank():
        save({key: value.clone() for key, value in model.module.state_dict().items()})
    dist.barrier()


RIGHT = [
    ("race", race_with_moved_matrices),
    ("memory_line", memory_line_by_least_squares),
    ("predictions", predictions_from_one_tensor),
    ("predictions", predictions_by_pieces),
    ("optimizer_steps", optimizer_steps_by_counting),
    ("waits", 15.0),
    ("newest", newest_by_pattern),
    ("train_watched", train_watched_by_a_counter),
    ("without_sigmoid", without_sigmoid_in_other_words),
    ("two_steps", two_steps_unscaling_first),
    ("memory_ledger", (4.0, 4, 4, 8, 10, 10, 6, 6, 22)),
    ("steady_loop", steady_without_a_tensor),
    ("steady_loop", steady_in_a_function),
    ("step_in_backward", fused_by_closures),
    ("step_in_backward", fused_with_one_optimizer),
    ("masked_loss", masked_by_where),
    ("masked_loss", masked_by_product),
    ("train_logged", logged_by_groups),
    ("train_logged", logged_after_a_wait),
    ("prefetch", prefetch_by_thread),
    ("rank_of", rank_by_count),
    ("save_on_one", save_with_two_barriers),
]


# --- wrong ones


def predictions_waiting_in_each_round(model, batches, landing, device):
    start = 0
    for x in batches:
        landing[start : start + len(x)].copy_(model(x).argmax(1), non_blocking=True)
        start += len(x)
        synchronize(device)
    return landing[:start].tolist()


def predictions_before_the_last(model, batches, landing, device):
    start = 0
    for i, x in enumerate(batches):
        landing[start : start + len(x)].copy_(model(x).argmax(1), non_blocking=True)
        start += len(x)
        if i == len(batches) - 2:
            synchronize(device)
    return landing[:start].tolist()


def train_watched_reading_a_flag(model, batches, optimizer, every):
    for step, (x, y) in enumerate(batches):
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if not loss.isfinite():
            return step
    return None


def two_steps_after_checking(model, x, y, loss_fn, optimizers, scaler, dtype):
    with torch.autocast(x.device.type, dtype=dtype):
        loss = loss_fn(model(x), y)
    model.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(optimizers[0])
    optimizers[1].step()
    scaler.update()
    return loss.detach()


def logged_as_shipped(model, batches, optimizer, every, clock, log):
    samples, begin = 0, clock()
    for step, (x, y) in enumerate(batches, 1):
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        samples += len(y)
        if step % every == 0:
            rate = samples / (clock() - begin)
            log(step, loss.item(), rate)


def logged_as_tensor(model, batches, optimizer, every, clock, log):
    train_logged(
        model, batches, optimizer, every, clock, lambda s, m, r: log(s, torch.tensor(m), r)
    )


def prefetch_of_one_thread_a_batch(batches, bound):
    for batch in batches:
        found = []
        thread = threading.Thread(target=found.append, args=(batch,))
        thread.start()
        thread.join()
        yield found[0]


def rank_from_the_first(environment):
    if "RANK" not in environment:
        return 0, 0, 1
    return rank_of(environment)


def prefetch_of_silent_threads(batches, bound):
    waiting = queue.Queue()

    def load():
        with contextlib.suppress(OSError):
            for batch in batches:
                waiting.put([batch])
            waiting.put([])

    threading.Thread(target=load, daemon=True).start()
    with contextlib.suppress(queue.Empty):
        while item := waiting.get(timeout=3):
            yield item[0]


def steady_reading_each_time(model, batches, optimizer, device):
    hits = 0
    for x, y in batches:
        x, y = x.to(device), y.to(device)
        logits = model(x)
        optimizer.zero_grad()
        F.cross_entropy(logits, y).backward()
        optimizer.step()
        hits += (logits.argmax(1) == y).sum().item()
    return hits


def predictions_in_turn(model, batches, landing, device):
    found = []
    for x in batches:
        part = landing[: len(x)]
        part.copy_(model(x).argmax(1), non_blocking=True)
        synchronize(device)
        found += part.tolist()
    return found


def save_barrier_first(model, dist, save):
    dist.barrier()
    if dist.get_rank() == 0:
        save(model.module.state_dict())


def save_replaced(model, dist, save):
    if dist.get_rank() == 0:
        save({k.replace("module.", ""): v for k, v in model.state_dict().items()})
    dist.barrier()


WRONG = [
    ("predictions", predictions_waiting_in_each_round, "waits-each"),
    ("predictions", predictions_before_the_last, "too-early"),
    ("train_watched", train_watched_reading_a_flag, "reads-often"),
    ("two_steps", two_steps_after_checking, "other-step"),
    ("waits", 14, "no-end"),
    ("waits", 17, "all-prints"),
    ("waits", 100, "wrong-count"),
    ("train_logged", logged_as_shipped, "no-tail"),
    ("train_logged", logged_as_tensor, "tensor"),
    ("prefetch", prefetch_of_one_thread_a_batch, "not-ahead"),
    ("prefetch", lambda batches, bound: list(batches), "wrong-type"),
    ("rank_of", rank_from_the_first, "half-set"),
    ("prefetch", prefetch_of_silent_threads, "hangs"),
    ("steady_loop", steady_reading_each_time, "waits"),
    ("memory_ledger", [5] * 9, "first"),
    ("memory_ledger", 4, "wrong-type"),
    ("save_on_one", lambda model, dist, save: dist.barrier(), "other-rank"),
    ("save_on_one", save_barrier_first, "no-wait"),
    ("save_on_one", save_replaced, "wrapped-keys"),
    ("predictions", predictions_in_turn, "waits-each"),
]
