"""Expandable segments: what PyTorch's source says of them, and that the figures stay consistent."""

from __future__ import annotations

import random

import pytest
import torch
from test_simgpu_allocator import KIB, MIB, consistent

from simgpu import temporary_device
from simgpu.allocator import Allocator
from simgpu.expandable import ExpandableAllocator


def test_pages_of_20_and_2_mib_are_mapped_as_they_are_needed():
    allocator = ExpandableAllocator(1000 * MIB)
    large, small = allocator.allocate(30 * MIB), allocator.allocate(700)
    assert (large.size, allocator.reserved) == (30 * MIB, 42 * MIB)
    more = allocator.allocate(12 * MIB)
    assert more.address == large.address + large.size, "what is left of a page is used first"
    assert allocator.reserved == 62 * MIB
    odd = allocator.allocate(17 * MIB + 512)
    assert odd.size == 17 * MIB + 512, "a rest of 512 bytes or more is split off"
    assert allocator.stats()["num_device_alloc"] == 3
    consistent(allocator, [large, small, more, odd])


def work_that_fails(allocator):
    """Allocate growing requests until one fails.

    Return in MiB that request, the allocated memory and the free memory. Of each request before, a block of
    half the size stays allocated.
    """
    for mib in range(20, 100, 2):
        try:
            allocator.free(allocator.allocate(mib * MIB))
        except torch.OutOfMemoryError:
            in_use = allocator.allocated
            return mib, in_use // MIB, (allocator.capacity - in_use) // MIB
        allocator.allocate(mib // 2 * MIB)
    raise AssertionError("the device never gets full")


def test_results_left_in_old_segments_do_not_hold_them_up():
    assert work_that_fails(Allocator(100 * MIB)) == (28, 46, 54)
    assert work_that_fails(ExpandableAllocator(100 * MIB)) == (32, 75, 25)


def test_sizes_that_change_cost_retries_by_default_and_none_here():
    retries = {}
    for allocator_type in (Allocator, ExpandableAllocator):
        allocator = allocator_type(100 * MIB)
        for mib in range(20, 102, 2):
            allocator.free(allocator.allocate(mib * MIB))
        retries[allocator_type] = allocator.stats()["num_alloc_retries"]
    assert retries[Allocator] > 20 and retries[ExpandableAllocator] == 0


def test_only_whole_free_pages_go_back():
    allocator = ExpandableAllocator(1000 * MIB)
    first, second, third = (allocator.allocate(n * MIB) for n in (10, 45, 5))
    assert allocator.reserved == 60 * MIB
    allocator.free(second)  # from 10 to 55 MiB: the page from 20 to 40 alone is whole
    allocator.empty_cache()
    assert allocator.reserved == 40 * MIB
    assert [s["total_size"] for s in allocator.snapshot()] == [20 * MIB, 20 * MIB]
    consistent(allocator, [first, third])
    again = allocator.allocate(40 * MIB)
    assert again.address == first.address + 10 * MIB, "the lowest place, with the free rest before it"
    assert allocator.reserved == 60 * MIB
    consistent(allocator, [first, third, again])


def test_pages_of_one_pool_go_to_the_other_when_memory_is_short():
    allocator = ExpandableAllocator(40 * MIB)
    small = [allocator.allocate(MIB) for _ in range(22)]
    for block in small:
        allocator.free(block)
    large = allocator.allocate(25 * MIB)
    assert allocator.stats()["num_alloc_retries"] == 1
    assert allocator.stats()["num_device_free"] == 1
    consistent(allocator, [large])


def test_any_order_of_requests_stays_consistent():
    pick, allocator, live, full = random.Random(0), ExpandableAllocator(300 * MIB), [], 0
    for turn in range(1500):
        if live and pick.random() < 0.48:
            allocator.free(live.pop(pick.randrange(len(live))))
        else:
            try:
                size = pick.choice((pick.randrange(1, MIB), pick.randrange(1, 60 * MIB), 512 * KIB))
                live.append(allocator.allocate(size))
            except torch.OutOfMemoryError:
                full += 1
                for _ in range(len(live) // 2):
                    allocator.free(live.pop(pick.randrange(len(live))))
        if pick.random() < 0.02:
            allocator.empty_cache()
        if turn % 10 == 0:
            consistent(allocator, live)
    assert full > 5


def test_a_device_can_have_them():
    with temporary_device("100 MiB", expandable_segments=True) as device:
        tensors = [torch.empty(2**20, device=device) for _ in range(20)]
        del tensors[::2]
        with pytest.raises(torch.OutOfMemoryError, match=r"24\.00 MiB"):
            torch.empty(6 * 2**20, device=device)
        assert all(s["is_expandable"] for s in torch.sim.memory_snapshot(device))
        del tensors
