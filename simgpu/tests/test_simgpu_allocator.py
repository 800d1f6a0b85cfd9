"""The simulated device's memory: what PyTorch's caching allocator does, and that it stays consistent."""

from __future__ import annotations

import gc
import linecache
import random
import re
import sys
import threading
import timeit
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from support import python

from simgpu import allocator as allocator_module
from simgpu.allocator import Allocator, format_size
from simgpu.expandable import ExpandableAllocator

KIB, MIB, GIB = 2**10, 2**20, 2**30
UNITS = {"bytes": 1, "KiB": KIB, "MiB": MIB, "GiB": GIB}
POOLS = ("all", "small_pool", "large_pool")


def consistent(allocator, live):
    """Assert that segments are tiled without gap or overlap and that all figures agree with them."""
    segments = allocator.snapshot()
    used, idle_neighbours = {}, 0
    end_of_last = 0
    for segment in segments:
        assert segment["address"] >= end_of_last, "segments overlap"
        end_of_last = position = segment["address"]
        free_before = False
        for piece in segment["blocks"]:
            assert piece["address"] == position, "blocks overlap, or bytes are lost"
            position += piece["size"]
            free = piece["state"] == "inactive"
            idle_neighbours += free and free_before
            free_before = free
            if not free:
                used[piece["address"]] = (piece["size"], piece["requested_size"])
        end_of_last += segment["total_size"]
        assert position == end_of_last
        assert segment["allocated_size"] == sum(
            p["size"] for p in segment["blocks"] if p["state"] == "active_allocated"
        )
    assert idle_neighbours == 0, "free neighbours were not merged"
    assert used == {block.address: (block.size, block.requested) for block in live if block.size}
    stats = allocator.stats()
    for pool in POOLS:
        in_pool = [s for s in segments if pool in ("all", f"{s['segment_type']}_pool")]
        assert stats[f"reserved_bytes.{pool}.current"] == sum(s["total_size"] for s in in_pool)
        assert stats[f"segment.{pool}.current"] == (0 if allocator.expandable else len(in_pool))
        assert stats[f"allocated_bytes.{pool}.current"] == sum(s["allocated_size"] for s in in_pool)
        assert stats[f"requested_bytes.{pool}.current"] == sum(s["requested_size"] for s in in_pool)
        split = [
            piece["size"]
            for s in in_pool
            for piece in s["blocks"]
            if piece["state"] == "inactive" and piece["size"] < s["total_size"]
            if not allocator.expandable
        ]
        assert stats[f"inactive_split_bytes.{pool}.current"] == sum(split)
        assert stats[f"inactive_split.{pool}.current"] == len(split)
    assert allocator.allocated == sum(size for size, _ in used.values())
    assert allocator.reserved == sum(s["total_size"] for s in segments) <= allocator.capacity
    assert allocator.free_memory == allocator.capacity - allocator.reserved
    for key, value in stats.items():
        assert value >= 0, key
        if key.endswith(".current") and not key.startswith("inactive"):
            metric = key.removesuffix(".current")
            assert value <= stats[f"{metric}.peak"]
            assert value == stats[f"{metric}.allocated"] - stats[f"{metric}.freed"]


@pytest.fixture
def allocator():
    """Return an allocator of 1 GiB."""
    return Allocator(1 * GIB)


@pytest.mark.parametrize(
    ("nbytes", "size", "reserved"),
    [
        (0, 0, 0),
        (1, 512, 2 * MIB),
        (512, 512, 2 * MIB),
        (513, 1024, 2 * MIB),
        (1 * MIB, 1 * MIB, 2 * MIB),
        (1 * MIB + 1, 1 * MIB + 512, 20 * MIB),
        (10 * MIB - 512, 10 * MIB - 512, 20 * MIB),
        (10 * MIB - 511, 10 * MIB, 10 * MIB),
        (10 * MIB, 10 * MIB, 10 * MIB),
        (10 * MIB + 1, 10 * MIB + 512, 12 * MIB),
        (21 * MIB - 512, 21 * MIB - 512, 22 * MIB),
        (21 * MIB, 22 * MIB, 22 * MIB),  # a rest of 1 MiB is not worth splitting off
    ],
)
def test_a_request_is_rounded_and_reserves_a_segment(allocator, nbytes, size, reserved):
    block = allocator.allocate(nbytes)
    assert (block.size, block.requested, allocator.reserved) == (size, nbytes, reserved)
    assert allocator.allocated == size
    consistent(allocator, [block])


def test_fragmentation_fails_a_request_though_enough_bytes_are_free():
    allocator = Allocator(200 * MIB)
    blocks = [allocator.allocate(5 * MIB) for _ in range(40)]
    assert allocator.free_memory == 0
    for block in blocks[::2]:
        allocator.free(block)
    free_in_total = allocator.capacity - allocator.allocated
    assert free_in_total == 100 * MIB
    with pytest.raises(torch.OutOfMemoryError, match=r"100\.00 MiB is reserved by PyTorch but unallo"):
        allocator.allocate(20 * MIB)
    assert allocator.stats()["inactive_split_bytes.all.current"] == 100 * MIB
    consistent(allocator, blocks[1::2])
    assert allocator.allocate(5 * MIB).size == 5 * MIB, "what fits a hole must still succeed"
    for block in blocks[1::2]:
        allocator.free(block)
    assert allocator.allocate(20 * MIB).size == 20 * MIB


def test_idle_segments_are_given_back_and_the_request_tried_again():
    allocator = Allocator(100 * MIB)
    small = allocator.allocate(10)
    for block in [allocator.allocate(40 * MIB), allocator.allocate(40 * MIB)]:
        allocator.free(block)
    assert allocator.reserved == 82 * MIB
    large = allocator.allocate(90 * MIB)
    assert allocator.reserved == 92 * MIB
    stats = allocator.stats()
    assert (stats["num_alloc_retries"], stats["num_ooms"]) == (1, 0)
    assert (stats["segment.all.allocated"], stats["segment.all.freed"]) == (4, 2)
    consistent(allocator, [small, large])


def test_a_segment_that_just_fits_leaves_the_idle_ones_alone():
    allocator = Allocator(100 * MIB)
    allocator.free(allocator.allocate(40 * MIB))
    allocator.allocate(60 * MIB)
    assert allocator.reserved == 100 * MIB
    assert allocator.stats()["num_alloc_retries"] == 0


def figures(message):
    """Return the byte figures of an out-of-memory message, in order."""
    return [float(n) * UNITS[unit] for n, unit in re.findall(r"([\d.]+) (bytes|KiB|MiB|GiB)", message)]


def test_the_out_of_memory_message_is_true_and_adds_up():
    allocator = Allocator(int(14.58 * GIB) // 512 * 512, index=1)
    keep = [allocator.allocate(3 * GIB), allocator.allocate(5 * MIB), allocator.allocate(700)]
    allocator.free(allocator.allocate(4 * GIB))
    with pytest.raises(torch.OutOfMemoryError) as caught:
        allocator.allocate(12 * GIB + 1)
    message = str(caught.value)
    assert message.startswith(
        "sim out of memory. Tried to allocate 12.00 GiB. GPU 1 has a total capacity of 14.58 GiB of which "
    )
    assert "modelled" in message
    tried, capacity, free, in_use, allocated, unallocated = figures(message)
    rounding = 0.02 * GIB
    assert free + in_use == pytest.approx(capacity, abs=rounding)
    assert allocated + unallocated == pytest.approx(in_use, abs=rounding)
    assert free == pytest.approx(allocator.free_memory, abs=rounding)
    assert in_use == pytest.approx(allocator.reserved, abs=rounding)
    assert allocated == pytest.approx(allocator.allocated, abs=rounding)
    assert tried > free
    assert allocator.reserved == 3 * GIB + 22 * MIB, "idle segments must be given back before it fails"
    consistent(allocator, keep)


@pytest.mark.parametrize(
    ("nbytes", "text"),
    [
        (0, "0 bytes"),
        (1024, "1024 bytes"),
        (1025, "1.00 KiB"),
        (MIB, "1024.00 KiB"),
        (20 * MIB, "20.00 MiB"),
        (GIB, "1024.00 MiB"),
        (3 * GIB // 2, "1.50 GiB"),
        (2000 * GIB, "2000.00 GiB"),
    ],
)
def test_sizes_are_written_as_pytorch_writes_them(nbytes, text):
    assert format_size(nbytes) == text


def test_stats_have_the_names_of_torch_cuda(allocator):
    stats = allocator.stats()
    documented = torch.cuda.memory_stats.__doc__
    for key in stats:
        assert key.split(".")[0] in documented or key.startswith("allocation."), key
    bytes_of = ("allocated_bytes", "active_bytes", "reserved_bytes", "requested_bytes")
    for metric in ("allocation", "segment", *bytes_of):
        for pool in POOLS:
            for field in ("current", "peak", "allocated", "freed"):
                assert stats[f"{metric}.{pool}.{field}"] == 0
    assert {"num_alloc_retries", "num_ooms", "inactive_split_bytes.all.current"} <= stats.keys()


def test_the_summary_says_modelled_and_shows_the_figures(allocator):
    keep = [allocator.allocate(30 * MIB), allocator.allocate(300)]
    summary = allocator.summary()
    assert summary.startswith("sim:0 memory (modelled): capacity 1024.00 MiB, not reserved 992.00 MiB")
    assert re.search(r"Allocated memory +30\.00 MiB +30\.00 MiB", summary)
    assert re.search(r"Reserved memory +32\.00 MiB", summary)
    assert max(map(len, summary.splitlines())) <= 100
    consistent(allocator, keep)


def test_twenty_thousand_random_operations():
    random_numbers = random.Random(0)
    allocator = Allocator(600 * MIB)
    live, failures, peak = [], 0, 0
    for step in range(20_000):
        if live and random_numbers.random() < 0.5:
            allocator.free(live.pop(random_numbers.randrange(len(live))))
        else:
            size = int(2 ** random_numbers.uniform(0, 26.5))
            fits = best_fit(allocator, size) if step % 20 == 0 else None
            try:
                block = allocator.allocate(size)
            except torch.OutOfMemoryError:
                failures += 1
                assert not fits
            else:
                assert block.requested == size <= block.size
                assert not fits or block.address == fits
                live.append(block)
        peak = max(peak, allocator.allocated)
        if step % 1000 == 0:
            allocator.empty_cache()
        if step % 100 == 0:
            consistent(allocator, live)
    assert failures > 10, "the run must meet a full device"
    assert allocator.max_allocated == peak
    for block in live:
        allocator.free(block)
    consistent(allocator, [])
    allocator.empty_cache()
    assert allocator.reserved == 0


def best_fit(allocator, nbytes):
    """Return the address of the smallest free chunk that fits, the lowest of equal ones; else None."""
    kind = "small" if nbytes <= 1 * MIB else "large"
    holes = [
        (piece["size"], piece["address"])
        for segment in allocator.snapshot()
        for piece in segment["blocks"]
        if segment["segment_type"] == kind and piece["state"] == "inactive"
    ]
    rounded = -(-nbytes // 512) * 512
    return min((hole for hole in holes if hole[0] >= rounded), default=(0, None))[1]


class Owner:
    """Holds a block as a tensor does, and frees it when it is garbage-collected."""

    def __init__(self, allocator, nbytes):
        self.allocator = allocator
        self.block = allocator.allocate(nbytes)

    def __del__(self):
        self.allocator.free(self.block)


def test_blocks_freed_by_the_garbage_collector_in_the_middle_of_an_allocation(monkeypatch):
    class CollectedBlock(allocator_module.Block):
        def __init__(self, *values):
            gc.collect()
            super().__init__(*values)

    monkeypatch.setattr(allocator_module, "Block", CollectedBlock)
    allocator = Allocator(1 * GIB)

    def work():
        for size in (100, 3 * MIB, 50 * MIB):
            owner = Owner(allocator, size)
            owner.itself = owner
            del owner  # only the collector can free it, and it runs in the next allocation
            allocator.free(allocator.allocate(2 * size))
            assert allocator.allocated == 0

    gc.freeze()  # each collection looks at what is new only
    try:
        finishes(work)
    finally:
        gc.unfreeze()
    consistent(allocator, [])


def finishes(work):
    """Run ``work`` in a thread and raise its exception; a deadlock fails the test instead of hanging it."""
    problems = []

    def run():
        try:
            work()
        except BaseException as problem:  # noqa: BLE001  (raised below, in the thread of the test)
            problems.append(problem)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(60)
    assert not thread.is_alive(), "the allocator waits for itself"
    if problems:
        raise problems[0]


def test_blocks_from_several_threads():
    allocator = Allocator(4 * GIB)

    def work(seed):
        random_numbers = random.Random(seed)
        blocks = []
        for _ in range(2000):
            blocks.append(allocator.allocate(random_numbers.randrange(1, 4 * MIB)))
            if len(blocks) > 20:
                allocator.free(blocks.pop(random_numbers.randrange(20)))
        for block in blocks:
            allocator.free(block)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(work, range(4)))
    finally:
        sys.setswitchinterval(interval)
    assert allocator.allocated == 0
    consistent(allocator, [])


def interrupted(action, line):
    """Run ``action``, and raise KeyboardInterrupt before the ``line``-th line executed in allocator.py.

    Return True if it was raised; None if the action ended before.
    """
    seen = 0

    def trace(frame, event, _):
        nonlocal seen
        if not frame.f_code.co_filename.endswith("allocator.py"):
            return None
        # Python itself sees to it that a signal does not land between a `with` line and its lock.
        if event == "line" and "with " not in linecache.getline(frame.f_code.co_filename, frame.f_lineno):
            seen += 1
            if seen == line:
                raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        action()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)
    return False


@pytest.mark.parametrize("call", ["allocate", "allocate a segment", "free", "empty_cache"])
@pytest.mark.parametrize("next_call", ["allocate", "free"])
@pytest.mark.parametrize("allocator_type", [Allocator, ExpandableAllocator])
def test_ctrl_c_at_any_line_leaves_the_figures_right(call, next_call, allocator_type):
    for line in range(1, 500):
        allocator = allocator_type(100 * MIB)
        live = [allocator.allocate(size) for size in (6 * MIB, 6 * MIB, 6 * MIB, 700, 40 * MIB)]
        allocator.free(live.pop())
        actions = {
            "allocate": lambda a=allocator, b=live: b.append(a.allocate(1 * MIB)),
            "allocate a segment": lambda a=allocator, b=live: b.append(a.allocate(60 * MIB)),
            "free": lambda a=allocator, b=live: a.free(b[1]),
            "empty_cache": allocator.empty_cache,
        }
        reached = interrupted(actions[call], line)
        if next_call == "free":
            allocator.free(live.pop(0))
        after = allocator.allocate(2 * MIB)
        # What was given out but never reached the caller is in use; what was given back is not.
        known = {p["address"] for s in allocator.snapshot() for p in s["blocks"] if p["state"] != "inactive"}
        if not reached:
            break
        given = known - {after.address}  # it may lie where a block was given back
        kept = [block for block in live if block.address in given]
        lost = known - {block.address for block in [*kept, after]}
        assert len(lost) <= 1 and len(live) - len(kept) <= 1
        if not lost:
            consistent(allocator, [*kept, after])
        for block in [*kept, after]:
            allocator.free(block)
        assert (allocator.allocated == 0) == (not lost)
    assert 5 < line < 499


@pytest.mark.slow
def test_freeing_while_the_interpreter_exits_is_silent():
    output = python(
        """
        import builtins, sys
        from simgpu.allocator import Allocator
        class Owner:
            def __init__(self, a): self.a, self.b, self.me = a, a.allocate(5 << 20), self
            def __del__(self, _print=sys.stdout.write):
                self.a.free(self.b); _print('freed ')
        a = Allocator(1 << 30)
        owners = [Owner(a) for _ in range(5)]
        builtins.last = Owner(a)
        """
    )
    assert output.count("freed") >= 5


def seconds_each(action):
    """Return the seconds of one call, the minimum of 7 repeats."""
    return min(timeit.repeat(action, number=2000, repeat=7)) / 2000


@pytest.mark.serial
def test_a_block_costs_little_and_not_more_on_a_full_device():
    def pair(allocator, nbytes):
        return lambda: allocator.free(allocator.allocate(nbytes))

    empty, full = Allocator(15 * GIB), Allocator(15 * GIB)
    blocks = [full.allocate(2 * KIB) for _ in range(6000)]
    for block in blocks[::2]:
        full.free(block)
    a, b = torch.ones(64), torch.ones(64)
    one_addition = seconds_each(lambda: a + b)
    quick, busy = seconds_each(pair(empty, 5000)), seconds_each(pair(full, 5000))
    print(f"in additions of 64 numbers: {quick / one_addition:.1f}; full: {busy / one_addition:.1f}")
    assert quick < 20 * one_addition
    assert busy < 4 * quick
