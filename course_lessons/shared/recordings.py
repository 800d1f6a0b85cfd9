"""Traces of real GPUs that others have published, reduced in size, each with its source.

``index.json`` in the same folder describes each, and gives figures of the full file.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from course_language import _
from course_utils import content

from .profiling import Facts, facts_of
from .traces import Trace, read

FOLDER = content.recorded("traces")
"""The folder with the files, their index and their licences."""


@dataclass(frozen=True)
class Recording:
    """A published trace of whole training steps.

    Attributes
    ----------
    name, path
        Its name in the index, and the reduced file.
    title, work, gpu
        What ran, in short and in full, and on which GPU.
    regime
        What limits its speed: one of the regimes of lesson 08, or ``"the device"``; empty if no lesson asks.
    repository, url, licence
        Repository, address and licence of the full file.
    """

    name: str
    path: Path
    title: str
    work: str
    gpu: str
    regime: str
    repository: str
    url: str
    licence: str

    @cached_property
    def trace(self) -> Trace:
        """The trace of its steps, of the kind ``"published"``."""
        whole_steps = read(self.path).whole_steps()
        whole_steps.kind = "published"
        return whole_steps

    @property
    def facts(self) -> Facts:
        """The `Facts` of a step; the shares of FLOP/s and bytes/s are nan, because they are not in a
        trace.
        """
        return facts_of(self.trace, len(self.trace.steps))


@cache
def index() -> dict[str, dict[str, Any]]:
    """Return the entries of ``index.json``, by the recordings' names."""
    entries: dict[str, dict[str, Any]] = json.loads((FOLDER / "index.json").read_text("utf-8"))
    return entries


@cache
def load(name: str) -> Recording:
    """Return a recording by its name in the index.

    Parameters
    ----------
    name
        The name.

    Raises
    ------
    ValueError
        If there is no recording of this name.
    """
    if name not in index():
        raise ValueError(
            _("There is no recording {name!r}; there are {index}.").format(
                name=name, index=", ".join(index())
            )
        )
    about = index()[name]
    words = ("title", "work", "gpu", "repository", "url", "licence")
    return Recording(
        name,
        FOLDER / f"{name}.json.gz",
        regime=about.get("regime", ""),
        **{word: _(about[word]) for word in words},
    )


def lettered() -> dict[str, Recording]:
    """Return the recordings whose regime lesson 08 asks for, under the neutral letters A to D."""
    asked = [name for name, about in index().items() if "regime" in about]
    return {letter: load(name) for letter, name in zip("ABCD", asked, strict=True)}
