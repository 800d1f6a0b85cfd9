"""Expandable segments: the setting ``PYTORCH_ALLOC_CONF=expandable_segments:True``, modelled.

By default the size of a segment is fixed. Requests of other sizes are cut from it, and the rest may fit no
request (fragmentation). With this setting a pool has one segment, a long range of addresses, to which
memory is mapped page by page: 2 MiB in the small pool, 20 MiB in the large one.

What is modelled, after the note "Expandable Segments" in ``c10/cuda/CUDACachingAllocator.cpp`` and its
functions (``find_expandable_block``, ``map_block``, ``unmap_block``, ``get_free_block``, ``should_split``):

- If no free chunk is large enough, pages are mapped at the lowest address where the request fits. A free
  chunk just before them, or between them, is used with them.
- The smallest chunk that is large enough is taken. A chunk followed by unmapped addresses
  counts with them, so the segment's open end is kept for requests that fit nowhere else.
- The rest of a chunk becomes a free chunk from 512 bytes on, in both pools.
- If pages would exceed the capacity, every page without a block in use is returned to the driver, and the
  request is retried. **Only whole free pages are returned, and no block is ever moved**: a gap between two
  blocks that is smaller than a page, or spans parts of two, remains.

Addresses do not run out here. PyTorch reserves 9/8 of the device's memory for a segment, and starts another
when that is used up.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Iterator
from dataclasses import dataclass, field

from .allocator import (
    LARGE_SEGMENT,
    ROUNDING,
    SMALL_SEGMENT,
    Allocator,
    Chunk,
    Pool,
    Segment,
    Usage,
)

_ADDRESSES = 2**44
"""The size of a segment's address range in bytes; more than any device's memory."""


@dataclass(eq=False, slots=True)
class ExpandableSegment(Segment):
    """A range of addresses that gets its memory page by page."""

    page: int  # bytes of a page
    mapped: list[int] = field(default_factory=list)  # the numbers of the mapped pages, in order

    def unmapped_ranges(self) -> Iterator[tuple[int, int]]:
        """Yield the (address, number of bytes) of each range without memory."""
        begin = 0
        for page in (*self.mapped, self.size // self.page):
            if page > begin:
                yield self.address + begin * self.page, (page - begin) * self.page
            begin = page + 1

    def mapped_ranges(self) -> list[tuple[int, int]]:
        """Return the (address, number of bytes) of each range with memory."""
        mapped: list[tuple[int, int]] = []
        for page in self.mapped:
            start = self.address + page * self.page
            if mapped and sum(mapped[-1]) == start:
                mapped[-1] = (mapped[-1][0], mapped[-1][1] + self.page)
            else:
                mapped.append((start, self.page))
        return mapped


class ExpandableAllocator(Allocator):
    """An allocator whose segments grow and shrink page by page; it has one segment per pool."""

    expandable = True
    _least_rest_of_large = ROUNDING

    def _segment_of(self, pool: Pool) -> ExpandableSegment:
        """Return the pool's segment; create it if there is none."""
        for segment in self._segments_held:
            if segment.pool is pool:
                return segment
        page = SMALL_SEGMENT if pool is self._small else LARGE_SEGMENT
        segment = ExpandableSegment(self._next_address, _ADDRESSES, pool, page)
        self._next_address += _ADDRESSES
        self._segments_held.add(segment)
        return segment

    def _choose_chunk(self, pool: Pool, position: int) -> Chunk:
        """Return the free chunk to cut a block from: the smallest that fits, by its potential size.

        A chunk's potential size includes the unmapped range behind it.
        """
        chunks, unmapped_ranges = pool.chunks, dict(self._segment_of(pool).unmapped_ranges())

        def potential_size(chunk: Chunk) -> int:
            return chunk[0] + unmapped_ranges.get(chunk[0] + chunk[1], 0)

        while position + 1 < len(chunks) and potential_size(chunks[position + 1]) < potential_size(
            chunks[position]
        ):
            position += 1
        return chunks[position]

    def _add_segment(self, pool: Pool, size: int) -> None:
        """Map pages for a request of ``size`` bytes (rounded).

        If the device is full, return idle pages to the driver and try again, else raise OutOfMemoryError.
        """
        if not self._expand(pool, size):
            self._release_idle()
            self._retries += 1
            if not self._expand(pool, size):
                self._grow_or_fail(size, size + 2**26)  # and some pages, which aren't split
                self._expand(pool, size)

    def _expand(self, pool: Pool, size: int) -> bool:
        """Map pages until there is a free chunk of ``size`` bytes; return False if the device is full."""
        segment = self._segment_of(pool)
        start = self._lowest_address(pool, size)
        while (have := pool.by_start.get(start, (0,))[0]) < size:
            end = start + have
            pages = min(
                dict(segment.unmapped_ranges())[end] // segment.page,
                math.ceil((size - have) / segment.page),
            )
            nbytes = pages * segment.page
            if self._segments.bytes.current + nbytes > self.allowed:
                return False
            pool.segments.grow(nbytes)
            self._segments.grow(nbytes)
            self._mapped += 1
            first = (end - segment.address) // segment.page
            for page in range(first, first + pages):
                insort(segment.mapped, page)
            pool.put_merged(nbytes, end, segment)
            if self.on_event:
                self.on_event("segment_map", end, nbytes)
        return True

    def _lowest_address(self, pool: Pool, size: int) -> int:
        """Return the lowest address at which ``size`` consecutive bytes are free or unmapped."""
        unmapped_ranges = dict(self._segment_of(pool).unmapped_ranges())
        for start in unmapped_ranges:
            previous_chunk = pool.by_end.get(start)
            begin = previous_chunk[1] if previous_chunk else start
            position = begin
            while position - begin < size:
                length = unmapped_ranges.get(position) or pool.by_start.get(position, (0,))[0]
                if not length:
                    break
                position += length
            else:
                return begin
        raise AssertionError("the last gap has no end")

    def _release_idle(self) -> None:
        """Return every page without a block in use to the driver; `_in_change` is set by the caller."""
        for pool in (self._small, self._large):
            for chunk in list(pool.chunks):
                size, start, segment = chunk
                first = math.ceil((start - segment.address) / segment.page)
                last = (start + size - segment.address) // segment.page
                if last <= first:
                    continue
                begin, end = (segment.address + page * segment.page for page in (first, last))
                pool.take(chunk)
                del segment.mapped[bisect_left(segment.mapped, first) : bisect_left(segment.mapped, last)]
                if begin > start:
                    pool.put(begin - start, start, segment)
                if start + size > end:
                    pool.put(start + size - end, end, segment)
                pool.segments.grow(begin - end)
                self._segments.grow(begin - end)
                self._unmapped += 1
                if self.on_event:
                    self.on_event("segment_unmap", begin, end - begin)

    def _recount(self, usage: Usage, segments: list[Segment]) -> None:
        """Set the current values of ``usage`` to the mapped bytes of these segments."""
        mapped = sum(length for segment in segments for _, length in segment.mapped_ranges())
        usage.count.current = 0
        usage.bytes.current = usage.requested.current = mapped
