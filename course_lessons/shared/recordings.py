"""What real GPUs did: traces that others published, slimmed, each with its source.

``index.json`` beside the files says what each is, and which figures the full file has.
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
"""Where the files, their index and their licences are."""


@dataclass(frozen=True)
class Recording:
    """A published trace of whole steps.

    Attributes
    ----------
    name, path
        Its name, and its file.
    title, work, gpu
        What ran, in a few words and in full, and on which GPU.
    regime
        What set the pace, where the lessons ask for it: one of the regimes of lesson 07, or ``"the device"``.
    repository, url, licence
        Who published the full file, where it is, and on what terms.
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
        """What host and device did in its steps."""
        seen = read(self.path).whole_steps()
        seen.kind = "published"
        return seen

    @property
    def facts(self) -> Facts:
        """The facts of a step. What a trace does not tell, FLOPs and bytes, is nan."""
        return facts_of(self.trace, len(self.trace.steps))


@cache
def index() -> dict[str, dict[str, Any]]:
    """Return what is known of each recording, and its full file's figures."""
    entries: dict[str, dict[str, Any]] = json.loads((FOLDER / "index.json").read_text("utf-8"))
    return entries


@cache
def load(name: str) -> Recording:
    """Return one of the recordings.

    Parameters
    ----------
    name
        As in the index.

    Raises
    ------
    ValueError
        Where there is none of that name.
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
    """Return the recordings whose regime lesson 07 asks for, under letters that do not tell."""
    asked = [name for name, about in index().items() if "regime" in about]
    return {letter: load(name) for letter, name in zip("ABCD", asked, strict=True)}
