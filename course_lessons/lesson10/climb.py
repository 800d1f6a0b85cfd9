"""A climb: the rungs tried so far, their file, the table, the ladder's drawing and the report card."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any

import torch

from course_language import _
from course_lessons.lesson10.drawings import Height, ladder, report_card
from course_lessons.lesson10.rung import Parts, Rung, described, outdated, read_rung, show_rungs
from course_utils.devices import abilities
from course_utils.files import write
from course_utils.timing import Measurement

MARGIN = 0.10
"""How much lower than the first loop's accuracy a kept loop's may be: it varies by a few points."""


class Climb:
    """The rungs of a ladder, in a JSON file that is rewritten after each.

    Parameters
    ----------
    start, device, epoch, folder, name, unit
        See `Ledger`, which measures the changes.
    """

    def __init__(
        self, start: Parts, device: torch.device, epoch: int, folder: Path, name: str, unit: str
    ) -> None:
        self.start, self.device, self.folder = dict(start), device, folder
        self.rungs: list[Rung] = []
        self.results: dict[str, Measurement | str] = {}
        self.base: Measurement | None = None
        """Images per second of the first loop."""
        self._epoch, self._name, self._unit = epoch, name, unit
        self._changes: dict[str, dict[str, Any]] = {}
        self._reference: float | None = None
        self._resumed_rungs: dict[str, Rung] = {}
        self._path: Path | None = None

    @property
    def best(self) -> dict[str, Any]:
        """The parts of the best loop so far: the first loop's, with every kept change."""
        return self._parts_with(self._kept_below(None))

    def result(self, name: str, value: Measurement | str) -> None:
        """Store a result for the report card, a measurement or a text, and rewrite the file."""
        self.results[name] = value
        self._save_file()

    def resume(self, file: Path | str | None = None) -> None:
        """Load an earlier climb from its file, so that what it measured is shown and not measured again.

        A rung is reused if its name, its change and all rungs below it are the same; a changed function with
        the same name is not noticed. If there is no such climb, the file is unreadable, or its device,
        machine, PyTorch, epoch or first loop differ, print that and begin again.

        Parameters
        ----------
        file
            The climb's JSON file; by default the newest for this type of device in the folder.
        """
        paths = [path for path in self.folder.glob(self._file_stem("*") + ".json") if path != self._path]
        if file is None and not paths:
            print(
                _("There is no earlier climb in {folder}: this one begins at the first rung.").format(
                    folder=self.folder
                )
            )
            return
        path = Path(file) if file else max(paths, key=lambda path: path.stat().st_mtime)
        try:
            saved = json.loads(path.read_text(encoding="utf-8"))
            if saved.pop("sha256", None) not in (None, _sha256(saved)):
                raise ValueError(_("not what was written"))
            order = saved.get("measured in this order", [])
            rungs = [read_rung(fields) for fields in saved["rungs"]]
            reusable = {r.name: r for r in rungs if r.speed_up and not outdated(r, order)}
            base = saved["first loop"] and Measurement(**saved["first loop"])
            differing = [name for name, value in self._conditions().items() if saved[name] != value]
            reference = saved["accuracy of the first loop"]
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            print(
                _("{path} cannot be read ({error}): this climb begins again.").format(
                    path=path, error=type(error).__name__
                )
            )
            return
        if differing:
            print(
                _("{path} was another climb: not the same {other}. This one is new.").format(
                    path=path.name, other=", ".join(differing)
                )
            )
            return
        self.base, self._reference = self.base or base, self._reference or reference
        self._resumed_rungs = reusable
        print(
            _(
                "{path}: {n_earlier} rungs are taken up. Run their cells: each shows at once what it found."
            ).format(path=path.name, n_earlier=len(self._resumed_rungs))
        )
        if reference:
            self._show_reference()

    def table(self) -> None:
        """Show all rungs as a table; a note lists those not measured, or measured on another ladder."""
        notes = [f"{r.name}: {r.why}" for r in self.rungs if not r.speed_up]
        changed = [r.name for r in self.rungs if self._ladder_changed(r)]
        if changed:
            notes.append(
                _("measured on another ladder than this one: {moved}").format(moved=", ".join(changed))
            )
        show_rungs(self.rungs, "measured", " · ".join(notes))

    def draw(self, limit: float | None = None) -> None:
        """Draw the ladder: images per second, rung by rung; rungs that were not kept are hollow.

        Parameters
        ----------
        limit
            An upper limit of images (or other units) per second on this device, if known.
        """
        ladder(self._heights(), limit, self._unit)

    def save(self, *headlines: str) -> tuple[Path, Path]:
        """Write the report card, a PNG beside the climb's JSON file, and display it.

        Parameters
        ----------
        headlines
            The names of the results to show above the ladder in large print.

        Returns
        -------
        tuple
            The paths of the PNG and the JSON file.

        Raises
        ------
        ValueError
            If no rung has been tried yet.
        OSError
            If the folder is not writable.
        """
        if self.base is None:
            raise ValueError(_("nothing has been measured yet: try a rung first"))
        data = self._own_path()
        picture = data.with_suffix(".png")
        self._write_json(data)
        title = _("{machine} ({device}), PyTorch {torch}, {date}").format(
            machine=self.base.machine,
            device=self.device,
            torch=self.base.torch,
            date=self.base.date,
        )
        results = {n: v if isinstance(v, str) else _measurement_text(v) for n, v in self.results.items()}
        report_card(self._heights(), title, results, headlines, picture, self._unit)
        return picture, data

    def _as_dict(self) -> dict[str, Any]:
        """Return the climb as a dict for JSON."""
        return {
            "schema": 2,
            **self._conditions(),
            "first loop": self.base and self.base.as_dict(),
            "accuracy of the first loop": self._reference,
            "rungs": [asdict(rung) for rung in self.rungs],
            "measured in this order": list(self._changes),
            "results": {
                name: value.as_dict() if isinstance(value, Measurement) else value
                for name, value in self.results.items()
            },
        }

    def _conditions(self) -> dict[str, Any]:
        """Return what must be equal in a file for its climb to be resumed."""
        return {
            "device": str(self.device),
            "machine": abilities(self.device).name,
            "torch": str(torch.__version__),
            f"{self._unit} in an epoch": self._epoch,
            "parts of the first loop": described(self.start),
        }

    def _write_json(self, path: Path) -> None:
        """Write the JSON file atomically, with a checksum."""
        known = self._as_dict()
        write(path, json.dumps(known | {"sha256": _sha256(known)}, indent=1, ensure_ascii=False))

    def _file_stem(self, when: str) -> str:
        """Return the stem of the file's name; ``when`` is a time, or ``"*"`` to search."""
        return f"{self._name}_{self.device.type}_{when}"

    def _own_path(self) -> Path:
        """Return the path of this climb's file: at the first call, choose a new name and create the
        folder.
        """
        if self._path is None:
            self.folder.mkdir(parents=True, exist_ok=True)
            stem = self._file_stem(f"{datetime.now():%Y-%m-%d_%H%M%S}")
            number = len(list(self.folder.glob(f"{stem}*.json")))
            self._path = self.folder / f"{stem}{f'_{number + 1}' if number else ''}.json"
        return self._path

    def _save_file(self) -> None:
        """Write the file; if that fails, print why."""
        try:
            self._write_json(self._own_path())
        except OSError as error:
            print(
                _("{folder} cannot be written to ({strerror}): keep this session alive.").format(
                    folder=self.folder, strerror=error.strerror
                )
            )

    def _kept_below(self, name: str | None) -> list[Rung]:
        """Return the kept rungs below the one with this name, or all if there is none of this name."""
        names = [rung.name for rung in self.rungs]
        place = names.index(name) if name in names else None
        return [rung for rung in self.rungs[:place] if rung.kept]

    def _ladder_changed(self, rung: Rung) -> bool:
        """Return whether the rungs below a measured one have changed since, or been measured again."""
        below = tuple(known.name for known in self._kept_below(rung.name))
        changed = rung.stands_on != below or outdated(rung, list(self._changes))
        return rung.speed_up is not None and changed

    def _parts_with(self, below: list[Rung]) -> dict[str, Any]:
        """Return the first loop's parts with the changes of these rungs."""
        parts = dict(self.start)
        for rung in below:
            parts |= self._changes[rung.name]
        return parts

    def _store_rung(self, rung: Rung, change: Parts) -> None:
        """Store a rung in place of an earlier one of its name, or at the end, and rewrite the file."""
        self._changes.pop(rung.name, None)  # the newest stands last
        self._changes[rung.name] = dict(change)
        names = [known.name for known in self.rungs]
        if rung.name in names:
            self.rungs[names.index(rung.name)] = rung
        else:
            self.rungs.append(rung)
        self._save_file()

    def _heights(self) -> list[Height]:
        """Return each rung as it is drawn: its speed-up times the rate of the kept loop below it."""
        below = self.base.median if self.base else 1.0
        heights = [Height(_("the first loop"), (below,) * 3, True)]
        for rung in self.rungs:
            speed_up = rung.speed_up
            if speed_up is None:
                heights.append(Height(rung.name, None, False))
                continue
            reached = tuple(below * x for x in (speed_up.q1, speed_up.median, speed_up.q3))
            guess = None if rung.predicted is None else below * rung.predicted
            heights.append(Height(rung.name, reached, rung.kept, speed_up.median, guess))
            below = reached[1] if rung.kept else below
        return heights

    def _show_reference(self) -> None:
        """Print the first loop's accuracy, and the lowest that a kept change may have."""
        lowest = self._reference - MARGIN
        print(
            _(
                "The first loop has {reference:.1%} after one epoch; what is kept, at least {lowest:.1%}."
            ).format(reference=self._reference, lowest=lowest)
        )


def _sha256(known: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a dict as JSON, in hexadecimal."""
    return hashlib.sha256(json.dumps(known, sort_keys=True).encode()).hexdigest()


def _measurement_text(value: Measurement) -> str:
    """Return a measurement as text: median, quartiles and number of values."""
    if value.unit == "samples/s":
        return _("{median:,.0f} ({q1:,.0f} to {q3:,.0f}), n = {n}").format(
            median=value.median, q1=value.q1, q3=value.q3, n=value.n
        )
    return _("{median} ({q1} to {q3}), n = {n}").format(
        median=value.written(),
        q1=value.written("q1"),
        q3=value.written("q3"),
        n=value.n,
    )
