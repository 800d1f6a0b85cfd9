"""What several checks of this lesson share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from course_lessons.shared.checking import on_ranks
from course_utils.exercises import Judge
from course_utils.exercises.forms import ComparesToReference
from simgpu import cluster


@dataclass(frozen=True)
class OnRanks(ComparesToReference):
    """A check over cases whose calls are made on simulated ranks. What is compared is what each rank gave.

    Parameters
    ----------
    program
        What a rank runs: ``program(dist, function, *case)``. A case begins with a sequence that has an item for each rank.
    hang
        Returns, for a case, the diagnosis of ranks that wait for ever.
    """

    read: Callable[[Judge, Any], Any] = lambda judge, got: got
    program: Callable[..., Any] = print
    hang: Callable[..., str] = lambda *case: "wrong-value"

    def __call__(self, answer: Callable[..., Any], judge: Judge) -> None:
        """Refuse an answer that gives a rank something else than the reference does."""

        def on_cluster(*case: Any) -> dict[str, Any]:
            def program(dist: Any, function: Callable[..., Any]) -> Any:
                return self.program(dist, function, *case)

            return _by_rank(on_ranks(program, answer, len(case[0]), judge, self.hang(*case)))

        super().__call__(on_cluster, judge)

    def values(self, function: Callable[..., Any], safe: bool = False) -> list[Any]:
        """Return what a function gives each rank, for each case."""

        def on_cluster(*case: Any) -> dict[str, Any]:
            run = cluster.run(lambda dist: self.program(dist, function, *case), len(case[0]))
            return _by_rank(run)

        return super().values(on_cluster, safe)


def _by_rank(run: cluster.Run) -> dict[str, Any]:
    return {f"rank {rank}": result for rank, result in enumerate(run.results)}


def words(sizes: Sequence[int]) -> str:
    return ", ".join(map(str, sizes)) or "0"
