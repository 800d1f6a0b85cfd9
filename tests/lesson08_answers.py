"""Answers to the problems of lesson 08: right ones of other kinds than the references, and more wrong ones."""

from __future__ import annotations

import copy
import itertools
import math
from itertools import pairwise

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from course_lessons.lesson08.bucket_lengths import bucket_lengths
from course_lessons.lesson08.compare import compare
from course_lessons.lesson08.gather_rows import gather_rows
from course_lessons.lesson08.leaving import LEAVING

# --- right ones


def crossover_from_below(rows):
    wins = [(n, ratio > 1) for n, _, _, ratio in sorted(rows)]
    return next((n for i, (n, _) in enumerate(wins) if all(w for _, w in wins[i:])), None)


def compare_warming_up_first(formats, seeds, train, accuracy, machine):
    for dtype in formats.values():
        accuracy(train(dtype, 99))
    found = {}
    for name, dtype in formats.items():
        runs = []
        for seed in seeds:
            machine.synchronize()
            machine.reset_peak()
            begin = machine.clock()
            model = train(dtype, seed)
            machine.synchronize()
            runs.append((machine.clock() - begin, machine.peak(), accuracy(model)))
        times, peaks, scores = zip(*runs, strict=True)
        found[name] = [list(scores), float(np.median(times)), max(peaks)]
    return found


def accumulation_gap_by_autograd(model, loss_fn, x, y, size):
    weights = list(model.parameters())

    def gradient(cuts):
        state = copy.deepcopy(model.state_dict())
        total = [torch.zeros_like(p) for p in weights]
        for a, b in pairwise(cuts):
            loss = loss_fn(model(x[a:b]), y[a:b])
            for t, g in zip(total, torch.autograd.grad(loss, weights), strict=True):
                t += g * (b - a) / len(x)
        model.load_state_dict(state)
        return nn.utils.parameters_to_vector(total)

    n = len(x)
    whole = gradient([0, n])
    return float((gradient([*range(0, n, size), n]) - whole).norm() / whole.norm())


def gpu_list_by_name(cuda):
    return [
        f"cuda:{i} {cuda.get_device_name(i)}, "
        f"{cuda.get_device_properties(f'cuda:{i}').total_memory / 1024**3:.1f} GiB"
        for i in range(cuda.device_count())
    ]


def gpu_list_by_device(cuda):
    cards = [
        cuda.get_device_properties(torch.device("cuda", i)) for i in range(cuda.device_count())
    ]
    sizes = [round(card.total_memory / 2**30, 1) for card in cards]
    return [
        f"cuda:{i} {c.name}, {n}" + " GiB"
        for i, (c, n) in enumerate(zip(cards, sizes, strict=True))
    ]


def bad_labels_one_by_one(labels, classes, ignore_index=-100):
    return [
        i
        for i, label in enumerate(labels.tolist())
        if label != ignore_index and not 0 <= label < classes
    ]


def as_numpy_by_force(tensor):
    return (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).numpy(force=True)


def first_that_runs_with_a_dict(work, devices):
    said = {}
    for device in devices:
        try:
            result = work(device)
        except (AssertionError, RuntimeError) as error:
            said[device] = error
        else:
            return (device, result)
    raise RuntimeError(f"nothing works: {said}")


def left_behind_by_walking(module, device):
    found = set()

    def walk(value):
        if isinstance(value, torch.Tensor):
            return value.device != device
        if isinstance(value, nn.Module):
            return any(t.device != device for t in value.state_dict(keep_vars=True).values())
        if isinstance(value, dict):
            return any([walk(v) for v in value.values()])
        return isinstance(value, (list, tuple)) and any([walk(v) for v in value])

    for path, part in module.named_modules():
        own = {
            k: v for k, v in vars(part).items() if k not in ("_parameters", "_buffers", "_modules")
        }
        for name, value in {**part._parameters, **part._buffers, **own}.items():
            if walk(value):
                found.add(f"{path}.{name}" if path else name)
    return sorted(found)


def keep_best_by_clones(model, train_epoch, score, epochs):
    history = []
    for _ in range(epochs):
        train_epoch(model)
        history.append(
            (score(model), {k: v.detach().clone() for k, v in model.state_dict().items()})
        )
    history = [entry for entry in history if not math.isnan(entry[0])]
    best = max(history, key=lambda entry: entry[0])
    model.load_state_dict(best[1])
    return best[0]


def fit_mixed_in_two_branches(model, batches, optimizer):
    where = next(model.parameters()).device
    on_cpu = where.type == "cpu"
    scaler = None if on_cpu else torch.amp.GradScaler(where.type)
    for x, y in batches:
        optimizer.zero_grad()
        x, y = x.to(where, non_blocking=True), y.to(where, non_blocking=True)
        with torch.amp.autocast(where.type, torch.bfloat16 if on_cpu else torch.float16):
            outputs = model(x)
        loss = F.cross_entropy(outputs.float(), y)
        if scaler is None:
            loss.backward()
            optimizer.step()
        else:
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            scaler.step(optimizer)
            scaler.update()


def averaged_by_the_formula(states, decay):
    average = None
    for state in states:
        now = copy.deepcopy(state)
        now = {k: v.float() if v.is_floating_point() else v for k, v in now.items()}
        for k, v in now.items():
            if average and v.is_floating_point():
                now[k] = decay * average[k] + (1 - decay) * v
        average = now
    return average


def tokens_copied_by_indexing(encoder, batches):
    with torch.no_grad():
        kept = [encoder(x)[:, [0]] for x in batches]
    return torch.cat(kept).squeeze(1)


def tokens_copied_by_select(encoder, batches):
    tokens = []
    for x in batches:
        with torch.no_grad():
            hidden = encoder(x)
        tokens.append(hidden.index_select(1, torch.zeros(1, dtype=torch.int64)).squeeze(1))
    return torch.cat(tokens)


def fit_by_divisors(capacity, batch, formats):
    found = {}
    for name, (fixed, per_sample, per_part, seconds) in formats.items():
        rows = batch
        while rows and (batch % rows or fixed + rows * per_sample > capacity * 9 / 10):
            rows -= 1
        if rows:
            found[name, rows, batch // rows] = batch // rows * per_part + batch * seconds
    return min(found, key=found.get, default=None)


def plan_by_combinations(blocks, budget):
    best = None
    for count in range(len(blocks)):
        for chosen in itertools.combinations(range(len(blocks) - 1), count):
            peak = max(
                sum(e + (0 if j in chosen else i) for j, (e, i, _) in enumerate(blocks[:n]))
                + blocks[n][0]
                + blocks[n][1]
                for n in range(len(blocks))
            )
            seconds = sum(blocks[n][2] for n in chosen)
            if peak <= budget and (best is None or seconds < best[0]):
                best = seconds, list(chosen)
    return best and best[1]


def hottest_by_index(events, n):
    device = [event.self_device_time_total for event in events]
    times = device if max(device) > 0 else [event.self_cpu_time_total for event in events]
    order = sorted(range(len(events)), key=lambda i: -times[i])
    return [events[i].key for i in order][:n]


def buckets_by_trying(lengths, per_shape, per_token):
    *shorter, longest = sorted(set(lengths)) or [None]
    if longest is None:
        return []
    best = None
    for count in range(len(shorter) + 1):
        for some in itertools.combinations(shorter, count):
            chosen = [*some, longest]
            padded = sum(min(b for b in chosen if b >= n) for n in lengths)
            costs = per_shape * len(chosen) + per_token * padded
            if best is None or costs < best[0]:
                best = costs, chosen
    return best[1]


def statistics_in_double(x, dist):
    wide = x.double()
    sums = torch.stack([torch.ones_like(wide), wide, wide.square()]).sum(1)
    dist.all_reduce(sums)
    mean = sums[1] / sums[0]
    return mean.to(x), (sums[2] / sums[0] - mean**2).to(x)


def statistics_by_gathering(x, dist):
    rows = gather_rows(x, dist)
    return [rows.mean(0), rows.var(0, unbiased=False)]


def gather_by_longest(rows, dist):
    counts = torch.zeros(dist.get_world_size(), dtype=torch.int64)
    counts[dist.get_rank()] = rows.size(0)
    dist.all_reduce(counts)
    padded = torch.zeros(int(counts.max()), *rows.shape[1:], dtype=rows.dtype)
    padded[: rows.size(0)] = rows
    parts = [torch.zeros_like(padded) for _ in counts]
    dist.all_gather(parts, padded)
    return torch.cat([part[:n] for part, n in zip(parts, counts.tolist(), strict=True)])


def gather_by_broadcast(rows, dist):
    counts = torch.zeros(dist.get_world_size(), dtype=torch.int64)
    counts[dist.get_rank()] = rows.size(0)
    dist.all_reduce(counts)
    parts = []
    for rank, n in enumerate(counts.tolist()):
        part = rows.clone() if rank == dist.get_rank() else rows.new_empty(n, *rows.shape[1:])
        dist.broadcast(part, rank)
        parts.append(part)
    return torch.cat(parts)


RIGHT = [
    ("crossover", crossover_from_below),
    ("compare", compare_warming_up_first),
    ("accumulation_gap", accumulation_gap_by_autograd),
    ("gpu_list", gpu_list_by_name),
    ("gpu_list", gpu_list_by_device),
    ("bad_labels", bad_labels_one_by_one),
    ("as_numpy", as_numpy_by_force),
    ("first_that_runs", first_that_runs_with_a_dict),
    ("left_behind", left_behind_by_walking),
    ("keep_best", keep_best_by_clones),
    ("leaving", [str(name) for name in LEAVING]),
    ("leaving", tuple(getattr(torch, name) for name in LEAVING)),
    ("fit_mixed", fit_mixed_in_two_branches),
    ("averaged", averaged_by_the_formula),
    ("first_tokens", tokens_copied_by_indexing),
    ("first_tokens", tokens_copied_by_select),
    ("fit_the_card", fit_by_divisors),
    ("choose_checkpoints", plan_by_combinations),
    ("hottest", hottest_by_index),
    ("bucket_lengths", buckets_by_trying),
    ("batch_statistics", statistics_in_double),
    ("batch_statistics", statistics_by_gathering),
    ("gather_rows", gather_by_longest),
    ("gather_rows", gather_by_broadcast),
]


# --- wrong ones


def compare_first_seed_warms_up(formats, seeds, train, accuracy, machine):
    return compare(formats, [seeds[0], *seeds], train, accuracy, machine)


def keep_best_on_the_host(model, train_epoch, score, epochs):
    best = -math.inf
    for _ in range(epochs):
        train_epoch(model)
        found = score(model)
        if found > best:
            best, kept = found, {k: v.cpu() for k, v in model.state_dict().items()}
    model.load_state_dict(kept)
    return best


def fit_mixed_scaling_by_hand(model, batches, optimizer):
    where = next(model.parameters()).device
    dtype = torch.bfloat16 if where.type == "cpu" else torch.float16
    scale = 1.0 if where.type == "cpu" else 2.0**16
    for x, y in batches:
        with torch.autocast(where.type, dtype=dtype):
            loss = F.cross_entropy(model(x.to(where)), y.to(where))
        optimizer.zero_grad()
        (loss * scale).backward()
        for p in model.parameters():
            p.grad /= scale
        optimizer.step()


def fit_mixed_with_the_old_scaler(model, batches, optimizer):
    where = next(model.parameters()).device
    dtype = torch.bfloat16 if where.type == "cpu" else torch.float16
    scaler = torch.cuda.amp.GradScaler(enabled=False)
    for x, y in batches:
        with torch.autocast(where.type, dtype=dtype):
            loss = F.cross_entropy(model(x.to(where)), y.to(where))
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)


def buckets_one_by_one(lengths, per_shape, per_token):
    def costs(chosen):
        padded = sum(min(b for b in chosen if b >= n) for n in lengths)
        return per_shape * len(chosen) + per_token * padded

    chosen = {max(lengths)} if lengths else set()
    while others := set(lengths) - chosen:
        best = min(others, key=lambda n: costs(chosen | {n}))
        if costs(chosen | {best}) >= costs(chosen):
            break
        chosen.add(best)
    return sorted(chosen)


WRONG = [
    ("compare", compare_first_seed_warms_up, "too-many-runs"),
    ("keep_best", keep_best_on_the_host, "last-weights"),
    ("fit_mixed", fit_mixed_scaling_by_hand, "steps-on"),
    ("fit_mixed", fit_mixed_with_the_old_scaler, "deprecated"),
    ("leaving", ("float16", "half", "float16", "float16", "float32", "float16"), "no-dtype"),
    ("leaving", ("float16", "float32"), "six"),
    ("fit_the_card", lambda capacity, batch, formats: (min(formats), batch), "three-things"),
    ("bucket_lengths", buckets_one_by_one, "not-least"),
    (
        "bucket_lengths",
        lambda lengths, per_shape, per_token: bucket_lengths(lengths or [1], per_shape, per_token),
        "none",
    ),
    ("choose_checkpoints", lambda blocks, budget: {len(blocks)}, "no-block"),
    ("hottest", lambda events, n: [event.key for event in events], "wrong-count"),
    ("gather_rows", lambda rows, dist: gather_rows(rows, dist).double(), "other-form"),
]
