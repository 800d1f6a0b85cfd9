"""A simple model of an FSDP step: when it gathers, computes and scatters, and which layers are unsharded."""

from __future__ import annotations

from dataclasses import dataclass, field

NETWORK, COMPUTE = "network", "compute"


@dataclass(frozen=True)
class Bar:
    """A span of time: its lane, its kind (``"gather"``, ``"forward"``, ...), its layer, start and end."""

    lane: str
    what: str
    layer: int
    start: float
    end: float


@dataclass
class Timeline:
    """One step of FSDP.

    ``whole`` has pairs of a time and the number of layers unsharded from then on, counting parameters and
    gradients.
    """

    bars: list[Bar] = field(default_factory=list)
    whole: list[tuple[float, int]] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        """The step's end."""
        return max(bar.end for bar in self.bars)

    @property
    def peak(self) -> int:
        """The largest number of layers, or gradients of layers, that are unsharded at once."""
        return max(count for _, count in self.whole)


def step(layers: int = 4, gather: float = 1.0, compute: float = 1.5, reshard: bool = True) -> Timeline:
    """Return the timeline of a step of equal layers: forward, then backward, which computes twice as long.

    A layer is gathered while the one before computes; with ``reshard`` at most two are unsharded in forward.
    One link carries one message at a time; scattering a gradient takes as long as gathering a layer.

    ``gather`` and ``compute`` are the times to gather a layer and to compute its forward pass; with
    ``reshard`` forward frees the gathered layers, so that backward gathers them again.
    """
    timeline = Timeline()
    changes: list[tuple[float, int]] = []
    link = busy = 0.0
    done: list[float] = []

    def add_bar(lane: str, what: str, layer: int, start: float, length: float) -> float:
        """Add a bar; return its end."""
        timeline.bars.append(Bar(lane, what, layer, start, start + length))
        return start + length

    for layer in range(layers):
        start = max(link, done[layer - 2] if reshard and layer > 1 else 0.0)
        changes.append((start, 1))
        link = add_bar(NETWORK, "gather", layer, start, gather)
        busy = add_bar(COMPUTE, "forward", layer, max(link, busy), compute)
        done.append(busy)
        if reshard:
            changes.append((busy, -1))
    begun, ended = busy, None
    for layer in reversed(range(layers)):
        if reshard:
            changes.append((max(link, begun), 1))
            link = add_bar(NETWORK, "gather", layer, max(link, begun), gather)
        if ended is not None:  # the gradients of the layer before, after this layer's parameters
            link = add_bar(NETWORK, "scatter", layer + 1, max(link, ended), gather)
            changes.append((link, -1))
        gathered = [b.end for b in timeline.bars if (b.what, b.layer) == ("gather", layer)]
        begun = max(busy, *gathered)
        changes.append((begun, 1))  # its gradients
        busy = ended = add_bar(COMPUTE, "backward", layer, begun, 2 * compute)
        changes.append((busy, -1))  # its parameters
    link = add_bar(NETWORK, "scatter", 0, max(link, busy), gather)
    changes.append((link, -1))
    count = 0
    for moment, change in sorted(changes):
        count += change
        timeline.whole.append((moment, count))
    return timeline
