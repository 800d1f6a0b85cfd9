"""Counters of kernel launches, synchronizations and copies of a program on the simulated devices."""

from __future__ import annotations

from dataclasses import dataclass, field

from .clock import ENGINES
from .messages import _


@dataclass(frozen=True)
class Copy:
    """One copy between host and device, or between two devices.

    ``code`` is ``"h2d"``, ``"d2h"`` or ``"p2p"``; ``bytes`` is the amount copied; ``seconds`` is its
    duration on the bus (modelled).
    """

    code: str
    bytes: int
    pinned: bool
    non_blocking: bool
    seconds: float

    @property
    def direction(self) -> str:
        """The direction in words, such as ``"host to device"``."""
        return ENGINES[self.code]


@dataclass
class Counters:
    """The launches, synchronizations and copies within a `simgpu.count` block, on all devices.

    The host synchronizes, that is waits for a device, in ``synchronize()``, ``.item()``, ``.cpu()``, a
    blocking copy, and an operation whose result's shape depends on the values.
    """

    launches: int = 0  # of kernels
    synchronizations: int = 0
    copies: list[Copy] = field(default_factory=list)  # in order
    races: int = 0  # operations that used memory another stream may still have been writing
    unmodelled: int = 0  # operations and copies whose time is only estimated from their bytes, or missing

    def _bytes(self, code: str) -> list[int]:
        """Return the bytes of each copy with this ``code``, in order."""
        return [copy.bytes for copy in self.copies if copy.code == code]

    @property
    def copies_to_device(self) -> int:
        """The number of copies from the host to a device."""
        return len(self._bytes("h2d"))

    @property
    def copies_to_host(self) -> int:
        """The number of copies from a device to the host."""
        return len(self._bytes("d2h"))

    @property
    def bytes_to_device(self) -> int:
        """The bytes copied from the host to a device."""
        return sum(self._bytes("h2d"))

    @property
    def bytes_to_host(self) -> int:
        """The bytes copied from a device to the host."""
        return sum(self._bytes("d2h"))

    def __str__(self) -> str:
        lines = [
            _("host to device   {copies_to_device:>6,} copies {bytes_to_device:>14,} bytes").format(
                copies_to_device=self.copies_to_device, bytes_to_device=self.bytes_to_device
            ),
            _("device to host   {copies_to_host:>6,} copies {bytes_to_host:>14,} bytes").format(
                copies_to_host=self.copies_to_host, bytes_to_host=self.bytes_to_host
            ),
            _("kernels launched {launches:>6,}").format(launches=self.launches),
            _("host waited      {synchronizations:>6,} times").format(synchronizations=self.synchronizations),
        ]
        between = self._bytes("p2p")
        if between:
            lines.insert(
                2,
                _("between devices  {n_between:>6,} copies {sum_between:>14,} bytes").format(
                    n_between=len(between), sum_between=sum(between)
                ),
            )
        if self.races:
            lines.append(_("races            {races:>6,}").format(races=self.races))
        if self.unmodelled:
            lines.append(_("cost only guessed{unmodelled:>6,}").format(unmodelled=self.unmodelled))
        return "\n".join([_("Counted on the simulated device:"), *lines])
