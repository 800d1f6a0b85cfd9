"""When FSDP gathers, computes and scatters, and what is whole meanwhile: a model that shows the idea."""

from __future__ import annotations

from dataclasses import dataclass, field

NETWORK, COMPUTE = "network", "compute"


@dataclass(frozen=True)
class Bar:
    """Something that takes time: on which lane, what, of which layer, from when to when."""

    lane: str
    what: str
    layer: int
    start: float
    end: float


@dataclass
class Timeline:
    """One step of FSDP.

    ``whole`` has, for each moment at which it changes, how many layers are whole in memory from then on,
    parameters and gradients counted alike.
    """

    bars: list[Bar] = field(default_factory=list)
    whole: list[tuple[float, int]] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        """When the step ends."""
        return max(bar.end for bar in self.bars)

    @property
    def peak(self) -> int:
        """The most layers, or gradients of layers, that are whole at once."""
        return max(count for _, count in self.whole)


def step(layers: int = 4, gather: float = 1.0, compute: float = 1.5, reshard: bool = True) -> Timeline:
    """Return what a step of equal layers does: forward, then backward, which computes twice as much.

    A layer is gathered while the one before computes; at most two are whole in forward with ``reshard``. One
    link carries one message at a time; scattering a gradient takes as long as gathering a layer.

    ``gather`` and ``compute`` are the times to gather a layer and to compute it forward; with ``reshard``
    forward frees what it has gathered, so that backward gathers again.
    """
    made = Timeline()
    changes: list[tuple[float, int]] = []
    link = busy = 0.0
    done: list[float] = []

    def put(lane: str, what: str, layer: int, start: float, length: float) -> float:
        made.bars.append(Bar(lane, what, layer, start, start + length))
        return start + length

    for layer in range(layers):
        start = max(link, done[layer - 2] if reshard and layer > 1 else 0.0)
        changes.append((start, 1))
        link = put(NETWORK, "gather", layer, start, gather)
        busy = put(COMPUTE, "forward", layer, max(link, busy), compute)
        done.append(busy)
        if reshard:
            changes.append((busy, -1))
    begun, ended = busy, None
    for layer in reversed(range(layers)):
        if reshard:
            changes.append((max(link, begun), 1))
            link = put(NETWORK, "gather", layer, max(link, begun), gather)
        if ended is not None:  # the gradients of the layer before, after this layer's parameters
            link = put(NETWORK, "scatter", layer + 1, max(link, ended), gather)
            changes.append((link, -1))
        gathered = [b.end for b in made.bars if (b.what, b.layer) == ("gather", layer)]
        begun = max(busy, *gathered)
        changes.append((begun, 1))  # its gradients
        busy = ended = put(COMPUTE, "backward", layer, begun, 2 * compute)
        changes.append((busy, -1))  # its parameters
    link = put(NETWORK, "scatter", 0, max(link, busy), gather)
    changes.append((link, -1))
    count = 0
    for moment, change in sorted(changes):
        count += change
        made.whole.append((moment, count))
    return made
