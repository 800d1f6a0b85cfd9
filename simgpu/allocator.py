"""The memory of a simulated GPU: a model of PyTorch's caching allocator, in plain Python.

Requesting GPU memory from the driver is slow. So PyTorch requests large *segments*, cuts *blocks* from them,
and keeps freed blocks for later requests. That is why *reserved* memory (the segments) is more than
*allocated* memory (the blocks in use), and why a request can fail although enough bytes are free.

What is modelled, after ``c10/cuda/CUDACachingAllocator.cpp`` of PyTorch, with its default settings:

- A request is rounded up to 512 bytes. Up to 1 MiB it is served from the small pool, with segments of 2 MiB.
  Above that it is served from the large pool, with segments of 20 MiB for requests under 10 MiB, and
  otherwise of the size of the request, rounded up to 2 MiB.
- The smallest free chunk that is large enough is taken (best fit). The rest of it becomes a free chunk if it
  has at least 512 bytes in the small pool, or more than 1 MiB in the large one. Otherwise the block gets the
  whole chunk.
- A freed block merges with the free chunks on either side, never across segments.
- If a new segment would exceed the capacity, all segments without a block in use are returned to the
  driver, and the request is retried. If it still does not fit, `torch.OutOfMemoryError` is raised.

What is not modelled: the memory that a CUDA context, cuBLAS or cuDNN takes for itself, other processes,
a pool for each stream (here a freed block may be used again at once, on any stream), the private pools
of CUDA graphs, and the settings of ``PYTORCH_ALLOC_CONF``. One of them, expandable segments, is in
`simgpu.expandable`. Nothing is stored at the addresses: the values of a simulated tensor are in host memory.
"""

from __future__ import annotations

import threading
from bisect import bisect_left, insort
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, NoReturn

import torch

MIB = 2**20
ROUNDING = 512
LARGEST_SMALL = MIB
SMALL_SEGMENT = 2 * MIB
LARGE_SEGMENT = 20 * MIB
OWN_SEGMENT_FROM = 10 * MIB
"""A request of at least this many bytes gets a segment of its own size."""
SEGMENT_ROUNDING = 2 * MIB
FIRST_ADDRESS = 0x7F00_0000_0000
"""The address of the first segment; nothing is stored there."""


@dataclass(eq=False, slots=True)
class Segment:
    """A contiguous range of device memory that the allocator got from the driver in one request."""

    address: int
    size: int
    pool: Pool

    def mapped_ranges(self) -> list[tuple[int, int]]:
        """Return the (address, number of bytes) of each range of its addresses that has memory behind it."""
        return [(self.address, self.size)]


@dataclass(eq=False, slots=True)
class Block:
    """A part of a segment that `Allocator.allocate` returned; compared by identity."""

    size: int  # bytes of the segment; 0 for a request of zero bytes
    requested: int  # bytes of the request
    segment: Segment | None  # None for a request of zero bytes
    address: int

    @property
    def offset(self) -> int:
        """The distance in bytes from the start of the segment to the block; 0 for an empty block."""
        return self.address - self.segment.address if self.segment else 0


class Stat:
    """A counter of ``memory_stats()``: current value, peak, and total of all increases."""

    __slots__ = ("current", "peak", "total")

    def __init__(self) -> None:
        self.current = self.peak = self.total = 0

    def add(self, amount: int) -> None:
        """Add ``amount`` to the current value; if it is negative, peak and total do not change."""
        self.current = current = self.current + amount
        if amount > 0:
            self.total += amount
            if current > self.peak:
                self.peak = current


class Usage:
    """The blocks in use, or the segments held, in one pool or in all pools.

    Attributes
    ----------
    count, bytes, requested
        Their number, their bytes, and the bytes that were requested, each as a `Stat`.
    """

    def __init__(self) -> None:
        self.count, self.bytes, self.requested = self.stats = (Stat(), Stat(), Stat())

    def add(self, size: int, requested: int) -> None:
        """Count one more block or segment, of ``size`` bytes for a request of ``requested``."""
        self.count.add(1)
        self.bytes.add(size)
        self.requested.add(requested)

    def grow(self, nbytes: int) -> None:
        """Add ``nbytes`` (negative: subtract) to the bytes; the number of segments stays."""
        self.bytes.add(nbytes)
        self.requested.add(nbytes)

    def remove(self, size: int, requested: int) -> None:
        """Count one block or segment less, of ``size`` bytes for a request of ``requested``."""
        self.count.current -= 1
        self.bytes.current -= size
        self.requested.current -= requested

    def recount(self, sizes: list[int], requested: list[int]) -> None:
        """Set the current values to those of these blocks or segments; peaks and totals stay."""
        self.count.current = len(sizes)
        self.bytes.current, self.requested.current = sum(sizes), sum(requested)


Chunk = tuple[int, int, Segment]
"""Free memory as (size, address, segment): sorted in this order, the first that fits is the best fit."""


class Pool:
    """The free chunks of the segments of one kind, indexed by size and by both end addresses.

    Parameters
    ----------
    segment_type
        ``"small"`` or ``"large"``.
    least_rest
        The fewest bytes that are split off a chunk as a free chunk of their own.
    """

    def __init__(self, segment_type: str, least_rest: int) -> None:
        self.segment_type = segment_type
        self.least_rest = least_rest
        self.blocks = Usage()
        self.segments = Usage()
        self.chunks: list[Chunk] = []
        self.by_start: dict[int, Chunk] = {}
        self.by_end: dict[int, Chunk] = {}

    def put(self, size: int, address: int, segment: Segment, _insort=insort) -> None:
        """Add a free chunk to the indexes, without merging.

        ``insort`` is a default argument because a global may be gone when the interpreter exits.
        """
        chunk = (size, address, segment)
        _insort(self.chunks, chunk)
        self.by_start[address] = self.by_end[address + size] = chunk

    def put_merged(self, size: int, address: int, segment: Segment) -> None:
        """Add a free chunk, merged with the adjacent free chunks of its segment."""
        next_chunk = self.by_start.get(address + size)
        if next_chunk is not None:
            self.take(next_chunk)
            size += next_chunk[0]
        previous_chunk = self.by_end.get(address)
        if previous_chunk is not None:
            self.take(previous_chunk)
            size += previous_chunk[0]
            address = previous_chunk[1]
        self.put(size, address, segment)

    def take(self, chunk: Chunk, _bisect=bisect_left) -> None:
        """Remove a free chunk from the indexes."""
        size, address, _ = chunk
        del self.chunks[_bisect(self.chunks, chunk)]
        del self.by_start[address], self.by_end[address + size]

    def clear(self) -> None:
        """Remove all free chunks; ``blocks`` and ``segments`` stay."""
        self.chunks.clear()
        self.by_start.clear()
        self.by_end.clear()

    def idle_segments(self) -> list[Chunk]:
        """Return the free chunks that are whole segments, that is the segments with no block in use."""
        return [chunk for chunk in self.chunks if chunk[0] == chunk[2].size]


class Allocator:
    """A caching allocator for the memory of one simulated device.

    It is thread-safe. `free` may be called at any moment, also by Python's garbage collector during
    another call: such a block is queued. The state is kept in two sets, the segments held and the blocks in
    use; if Ctrl-C interrupts a change, `_rebuild` derives everything else from them.

    Parameters
    ----------
    capacity
        The device's memory, in bytes.
    index
        The device's number, for error messages.
    """

    expandable = False
    """Whether segments grow page by page, as those of `simgpu.expandable.ExpandableAllocator`."""
    _least_rest_of_large = LARGEST_SMALL + 1

    def __init__(self, capacity: int, index: int = 0) -> None:
        self.index = index
        self._small = Pool("small", least_rest=ROUNDING)
        self._large = Pool("large", least_rest=self._least_rest_of_large)
        self._blocks = Usage()
        self._segments = Usage()
        self._retries = 0
        self._ooms = 0
        self.grows = False  # in a dry run: a full device gives its idle segments back, and then grows
        self._mapped = self._unmapped = 0
        self._next_address = FIRST_ADDRESS
        self._segments_held: set[Segment] = set()
        self._live_blocks: set[Block] = set()
        self._pending_frees: list[Block] = []
        self._in_change = False
        self._lock = threading.Lock()
        self.on_event: Callable[[str, int, int], None] | None = None
        """Called with every event (action, address, bytes) while a history is recorded; else None."""
        self.capacity = capacity
        self.fraction = 1.0  # of the capacity: what the segments may hold

    def allocate(self, nbytes: int) -> Block:
        """Allocate a block of at least ``nbytes`` bytes.

        A request of zero bytes takes no memory: the block has size 0, and freeing it does nothing.

        Raises
        ------
        torch.OutOfMemoryError
            If it does not fit even after idle segments were returned to the driver. Blocks in use stay valid.
        ValueError
            If ``nbytes`` is negative.
        """
        if nbytes <= 0:
            if nbytes < 0:
                raise ValueError(f"cannot allocate {nbytes} bytes: the size must not be negative")
            return Block(0, 0, None, 0)
        size = (nbytes + ROUNDING - 1) & -ROUNDING
        pool = self._small if size <= LARGEST_SMALL else self._large
        with self._lock:
            if self._in_change or self._pending_frees:
                self._settle_pending()
            self._in_change = True
            position = bisect_left(pool.chunks, (size,))
            if position == len(pool.chunks):
                self._add_segment(pool, size)
                position = bisect_left(pool.chunks, (size,))
            chunk = self._choose_chunk(pool, position) if self.expandable else pool.chunks[position]
            available, address, segment = chunk
            pool.take(chunk)
            if available - size >= pool.least_rest:
                pool.put(available - size, address + size, segment)
            else:
                size = available
            pool.blocks.add(size, nbytes)
            self._blocks.add(size, nbytes)
            block = Block(size, nbytes, segment, address)
            self._live_blocks.add(block)
            self._in_change = False
            if self.on_event:
                self.on_event("alloc", address, nbytes)
        return block

    def free(self, block: Block) -> None:
        """Free a block. Its memory stays reserved for later requests.

        While another call holds the lock, the block is queued and freed by a later call.

        Raises
        ------
        RuntimeError
            If the block is not in use: freed before, or allocated by another device's allocator.
        """
        if block not in self._live_blocks:
            if block.size == 0:
                return
            raise RuntimeError(
                f"a block of {block.size} bytes is not in use on sim:{self.index}; free each block once"
            )
        if self._lock.locked():
            self._pending_frees.append(block)
            return
        with self._lock:
            if self._in_change or self._pending_frees:
                self._settle_pending()
            self._release(block)

    def empty_cache(self) -> None:
        """Return the segments without a block in use to the driver, as ``torch.cuda.empty_cache`` does."""
        with self._lock:
            self._settle_pending()
            self._in_change = True
            self._release_idle()
            self._in_change = False

    def reset_peak(self) -> None:
        """Set all peaks to the current values."""
        self._settle_if_idle()
        for stat in self._stats():
            stat.peak = stat.current

    def reset_accumulated(self) -> None:
        """Set the counts of retries and errors to 0, and all totals to the current values."""
        self._settle_if_idle()
        self._retries = self._ooms = self._mapped = self._unmapped = 0
        for stat in self._stats():
            stat.total = stat.current

    def _stats(self) -> Iterator[Stat]:
        """Yield every `Stat` of the allocator."""
        for owner in (
            self._small.blocks,
            self._small.segments,
            self._large.blocks,
            self._large.segments,
        ):
            yield from owner.stats
        yield from (*self._blocks.stats, *self._segments.stats)

    @property
    def allocated(self) -> int:
        """Bytes of the blocks in use, including rounding."""
        self._settle_if_idle()
        return self._blocks.bytes.current

    @property
    def reserved(self) -> int:
        """Bytes of all segments held."""
        self._settle_if_idle()
        return self._segments.bytes.current

    @property
    def max_allocated(self) -> int:
        """The peak of `allocated` since the last `reset_peak`."""
        return self._blocks.bytes.peak

    @property
    def max_reserved(self) -> int:
        """The peak of `reserved` since the last `reset_peak`."""
        return self._segments.bytes.peak

    @property
    def free_memory(self) -> int:
        """Bytes of the device that belong to no segment."""
        return self.capacity - self.reserved

    @property
    def allowed(self) -> int:
        """Bytes that the segments may hold: the capacity, or the share of it in ``fraction``."""
        return int(self._capacity * self.fraction) if self.fraction < 1 else self._capacity

    @property
    def capacity(self) -> int:
        """The device's memory in bytes. Setting it below what is in use raises ValueError."""
        return self._capacity

    @capacity.setter
    def capacity(self, nbytes: int) -> None:
        if nbytes <= 0:
            raise ValueError(f"a device needs some memory, not {nbytes} bytes")
        if nbytes < self.reserved:
            self.empty_cache()
        if nbytes < self.reserved:
            raise ValueError(
                f"sim:{self.index} cannot have a capacity of {format_size(nbytes)}: segments with tensors "
                f"in use hold {format_size(self.reserved)}; delete tensors first, or ask for more memory"
            )
        self._capacity = nbytes

    def stats(self) -> dict[str, int]:
        """Return the figures of ``torch.cuda.memory_stats()`` by its keys.

        For the inactive splits (free chunks in segments that are partly in use) there is only
        ``current``; an active block is always an allocated one here.
        """
        with self._lock:
            self._settle_pending()
            segments = self._segments.count
            figures = {
                "num_alloc_retries": self._retries,
                "num_ooms": self._ooms,
                "num_device_alloc": segments.total + self._mapped,
                "num_device_free": segments.total - segments.current + self._unmapped,
            }
            small, large = self._small, self._large
            for name, blocks, segments, pools in (
                ("all", self._blocks, self._segments, (small, large)),
                ("small_pool", small.blocks, small.segments, (small,)),
                ("large_pool", large.blocks, large.segments, (large,)),
            ):
                for metric, stat in (
                    ("allocation", blocks.count),
                    ("allocated_bytes", blocks.bytes),
                    ("active", blocks.count),
                    ("active_bytes", blocks.bytes),
                    ("requested_bytes", blocks.requested),
                    ("segment", segments.count),
                    ("reserved_bytes", segments.bytes),
                ):
                    figures[f"{metric}.{name}.current"] = stat.current
                    figures[f"{metric}.{name}.peak"] = stat.peak
                    figures[f"{metric}.{name}.allocated"] = stat.total
                    figures[f"{metric}.{name}.freed"] = stat.total - stat.current
                splits = [
                    size
                    for pool in pools
                    for size, _, segment in pool.chunks
                    if size < segment.size and not self.expandable
                ]
                figures[f"inactive_split.{name}.current"] = len(splits)
                figures[f"inactive_split_bytes.{name}.current"] = sum(splits)
        return figures

    def snapshot(self) -> list[dict[str, Any]]:
        """Return the segments and their blocks in the format of ``torch.cuda.memory_snapshot()``."""
        with self._lock:
            self._settle_pending()
            return [self._describe(*segment) for segment in self._layout()]

    def summary(self) -> str:
        """Return a table of the memory in use as text, like ``torch.cuda.memory_summary()``."""
        figures = self.stats()
        lines = [
            f"sim:{self.index} memory (modelled): capacity {format_size(self.capacity)}, "
            f"not reserved {format_size(self.free_memory)}",
            f"{'':22}{'now':>12}{'peak':>12}{'taken ever':>14}{'freed ever':>14}",
        ]
        for label, metric, show in (
            ("Allocated memory", "allocated_bytes", format_size),
            ("Requested memory", "requested_bytes", format_size),
            ("Reserved memory", "reserved_bytes", format_size),
            ("Allocations", "allocation", str),
            ("Segments", "segment", str),
        ):
            now, peak, total, freed = (
                show(figures[f"{metric}.all.{field}"]) for field in ("current", "peak", "allocated", "freed")
            )
            lines.append(f"{label:22}{now:>12}{peak:>12}{total:>14}{freed:>14}")
        split = format_size(figures["inactive_split_bytes.all.current"])
        lines.append(f"{'Free, not releasable':22}{split:>12}")
        lines.append(
            f"Out of memory: {self._ooms} times; segments given back and tried again: {self._retries}"
        )
        return "\n".join(lines)

    def _release(self, block: Block) -> None:
        """Free a block and merge it with the adjacent free chunks; the caller holds the lock."""
        self._in_change = True
        self._live_blocks.remove(block)
        segment = block.segment
        pool = segment.pool
        pool.blocks.remove(block.size, block.requested)
        self._blocks.remove(block.size, block.requested)
        pool.put_merged(block.size, block.address, segment)
        self._in_change = False
        if self.on_event:
            self.on_event("free", block.address, block.requested)

    def _add_segment(self, pool: Pool, size: int) -> None:
        """Add a segment large enough for a request of ``size`` bytes (rounded) as a free chunk.

        If the device is full, return idle segments to the driver and try again, else raise OutOfMemoryError.
        """
        total = _segment_size(size)
        if self._segments.bytes.current + total > self.allowed:
            self._release_idle()
            self._retries += 1
            if self._segments.bytes.current + total > self.allowed:
                self._grow_or_fail(size, total)
        segment = Segment(self._next_address, total, pool)
        # The gap keeps segments apart, so that their chunks never touch and merge.
        self._next_address += total + SEGMENT_ROUNDING
        pool.segments.add(total, total)
        self._segments.add(total, total)
        pool.put(total, segment.address, segment)
        self._segments_held.add(segment)
        if self.on_event:
            self.on_event("segment_alloc", segment.address, total)

    def _choose_chunk(self, pool: Pool, position: int) -> Chunk:
        """Return the free chunk to cut a block from; ``pool.chunks[position]`` is the smallest that fits."""
        return pool.chunks[position]

    def _grow_or_fail(self, size: int, total: int) -> None:
        """Take ``total`` more bytes than the device has if it `grows`; else fail as `_fail`."""
        if not self.grows:
            self._fail(size)
        self._capacity = self._segments.bytes.current + total

    def _fail(self, size: int) -> NoReturn:
        """Count an out-of-memory error for a request of ``size`` bytes, and raise torch.OutOfMemoryError.

        Called in a change, which ends.
        """
        self._ooms += 1
        self._in_change = False
        if self.on_event:
            self.on_event("oom", self._capacity - self._segments.bytes.current, size)
        raise torch.OutOfMemoryError(self._out_of_memory(_segment_size(size)))

    def _release_idle(self) -> None:
        """Return the segments without a block in use to the driver.

        The caller holds the lock and sets `_in_change`.
        """
        for pool in (self._small, self._large):
            for chunk in pool.idle_segments():
                size, _, segment = chunk
                pool.take(chunk)
                pool.segments.remove(size, size)
                self._segments.remove(size, size)
                self._segments_held.remove(segment)
                if self.on_event:
                    self.on_event("segment_free", segment.address, size)

    def _out_of_memory(self, nbytes: int) -> str:
        """Return an out-of-memory error's text: CUDA's, with "sim" for "CUDA" and this device's figures.

        ``nbytes`` is the size of the segment that did not fit.
        """
        allocated, reserved = self._blocks.bytes.current, self._segments.bytes.current
        allowed = f"{format_size(self.allowed)} allowed; " if self.fraction < 1 else ""
        return (
            f"sim out of memory. Tried to allocate {format_size(nbytes)}. GPU {self.index} has a total "
            f"capacity of {format_size(self._capacity)} of which {format_size(self._capacity - reserved)} "
            f"is free. Including non-PyTorch memory, this process has {format_size(reserved)} memory in "
            f"use. {allowed}Of the allocated memory {format_size(allocated)} is allocated by PyTorch, and "
            f"{format_size(reserved - allocated)} is reserved by PyTorch but unallocated. If reserved but "
            "unallocated memory is large try setting PYTORCH_ALLOC_CONF=expandable_segments:True to avoid "
            "fragmentation.  See documentation for Memory Management  "
            "(https://pytorch.org/docs/stable/notes/cuda.html#environment-variables) "
            "(All figures are modelled.)"
        )

    def _settle_if_idle(self) -> None:
        """Call `_settle_pending` before figures are read, unless another call holds the lock."""
        if (self._in_change or self._pending_frees) and not self._lock.locked():
            with self._lock:
                self._settle_pending()

    def _settle_pending(self) -> None:
        """Repair the state if a change was interrupted, then free the queued blocks.

        The caller holds the lock.
        """
        if self._in_change:
            self._rebuild()
        while self._pending_frees:
            if self._pending_frees[0] in self._live_blocks:
                self._release(self._pending_frees[0])
            self._pending_frees.pop(0)

    def _rebuild(self) -> None:
        """Recompute, after an interrupted change, the free chunks and current figures from the two sets.

        The sets are the segments held and the blocks in use. Peaks and totals stay.

        The caller holds the lock.
        """
        live, held = list(self._live_blocks), list(self._segments_held)
        for pool in (self._small, self._large):
            pool.clear()
            blocks = [block for block in live if block.segment.pool is pool]
            pool.blocks.recount([block.size for block in blocks], [block.requested for block in blocks])
            self._recount(pool.segments, [segment for segment in held if segment.pool is pool])
        self._blocks.recount([block.size for block in live], [block.requested for block in live])
        self._recount(self._segments, held)
        for segment, _, _, pieces in self._layout():
            for piece in pieces:
                if not isinstance(piece, Block):
                    segment.pool.put(*piece)
        self._in_change = False

    def _recount(self, usage: Usage, segments: list[Segment]) -> None:
        """Set the current values of ``usage`` to those of these segments; peaks and totals stay."""
        sizes = [segment.size for segment in segments]
        usage.recount(sizes, sizes)

    def _layout(self) -> list[tuple[Segment, int, int, list[Block | Chunk]]]:
        """Return the blocks and free chunks of each mapped range, sorted by address.

        Each entry is (segment, start address, bytes, list of `Block` or `Chunk`).
        """
        inside: dict[Segment, list[Block]] = {
            segment: [] for segment in sorted(self._segments_held, key=_address)
        }
        for block in sorted(self._live_blocks, key=_address):
            inside[block.segment].append(block)
        layout = []
        for segment, blocks in inside.items():
            for start, length in segment.mapped_ranges():
                pieces: list[Block | Chunk] = []
                position, end = start, start + length
                for block in blocks:
                    if not start <= block.address < end:
                        continue
                    if block.address > position:
                        pieces.append((block.address - position, position, segment))
                    pieces.append(block)
                    position = block.address + block.size
                if position < end:
                    pieces.append((end - position, position, segment))
                layout.append((segment, start, length, pieces))
        return layout

    def _describe(
        self, segment: Segment, start: int, length: int, pieces: list[Block | Chunk]
    ) -> dict[str, Any]:
        """Return the dict of one segment in `snapshot`; the arguments are an entry of `_layout`."""
        blocks = []
        for piece in pieces:
            if isinstance(piece, Block):
                block = (piece.address, piece.size, piece.requested, "active_allocated")
            else:
                block = (piece[1], piece[0], 0, "inactive")
            names = ("address", "size", "requested_size", "state")
            blocks.append(dict(zip(names, block, strict=True)))
        allocated = sum(block["size"] for block in blocks if block["state"] != "inactive")
        return {
            "device": self.index,
            "address": start,
            "total_size": length,
            "allocated_size": allocated,
            "active_size": allocated,
            "requested_size": sum(block["requested_size"] for block in blocks),
            "stream": 0,
            "segment_type": segment.pool.segment_type,
            "segment_pool_id": (0, 0),  # that of all memory outside a torch.cuda.MemPool
            "is_expandable": self.expandable,
            "blocks": blocks,
        }


def _segment_size(size: int) -> int:
    """Return how many bytes are requested from the driver for a request of ``size`` bytes (rounded)."""
    if size <= LARGEST_SMALL:
        return SMALL_SEGMENT
    if size < OWN_SEGMENT_FROM:
        return LARGE_SEGMENT
    return (size + SEGMENT_ROUNDING - 1) // SEGMENT_ROUNDING * SEGMENT_ROUNDING


def format_size(nbytes: int) -> str:
    """Return a number of bytes as PyTorch's messages have it, such as ``"2.00 GiB"``; never translated."""
    if nbytes <= 1024:
        return f"{nbytes} bytes"
    for unit in ("KiB", "MiB"):
        nbytes /= 1024
        if nbytes <= 1024:
            return f"{nbytes:.2f} {unit}"
    return f"{nbytes / 1024:.2f} GiB"


_address = attrgetter("address")
