"""Helpers for the checks of lesson 06."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from course_lessons.shared.checking import on_ranks
from course_utils.exercises import Judge
from course_utils.exercises.forms import ComparesToReference
from simgpu import cluster


@dataclass(frozen=True)
class OnRanks(ComparesToReference):
    """A check over cases that run on simulated ranks; the results of all ranks are compared.

    Parameters
    ----------
    program
        Called on each rank as ``program(dist, function, *case)``. A case begins with a sequence that has an
        item for each rank.
    hang
        Returns, for a case, the diagnosis of a deadlock.
    """

    read: Callable[[Judge, Any], Any] = lambda judge, got: got
    program: Callable[..., Any] = print
    hang: Callable[..., str] = lambda *case: "wrong-value"

    def __call__(self, answer: Callable[..., Any], judge: Judge) -> None:
        """Refuse an answer whose result on a rank differs from the reference's."""

        def on_cluster(*case: Any) -> dict[str, Any]:
            def program(dist: Any, function: Callable[..., Any]) -> Any:
                return self.program(dist, function, *case)

            return _by_rank(on_ranks(program, answer, len(case[0]), judge, self.hang(*case)))

        super().__call__(on_cluster, judge)

    def values(self, function: Callable[..., Any], safe: bool = False) -> list[Any]:
        """Return a function's results for each case, a dict by rank."""

        def on_cluster(*case: Any) -> dict[str, Any]:
            run = cluster.run(lambda dist: self.program(dist, function, *case), len(case[0]))
            return _by_rank(run)

        return super().values(on_cluster, safe)


def _by_rank(run: cluster.Run) -> dict[str, Any]:
    """Return the results of a run, by names such as ``"rank 0"``."""
    return {f"rank {rank}": result for rank, result in enumerate(run.results)}


def words(sizes: Sequence[int]) -> str:
    """Return sizes as text; ``"0"`` if there are none."""
    return ", ".join(map(str, sizes)) or "0"


NOT_THERE = -1e9
"""The value of a tensor's elements until its message has arrived."""


class Watched:
    """A wrapper of a rank's ``dist`` that records the names of the attributes used.

    ``irecv`` first fills the tensor with `NOT_THERE`, so that a use before the message's arrival gives a
    wrong result.
    """

    def __init__(self, dist: Any, asked: set[str]) -> None:
        self._dist, self._asked = dist, asked

    def __getattr__(self, name: str) -> Any:
        self._asked.add(name)
        return getattr(self._dist, name)

    def irecv(self, tensor: Tensor, *args: Any, **kwargs: Any) -> Any:
        """Fill the tensor with `NOT_THERE`, then call ``irecv``."""
        return self._dist.irecv(tensor.fill_(NOT_THERE), *args, **kwargs)
