"""A learner's notebook under a dated name, when a fresh one takes its place."""

from __future__ import annotations

import itertools
import os
import re
from datetime import date
from pathlib import Path

from course_language import _

RELOAD = _("If it is open in JupyterLab, choose File > Reload Notebook from Disk there.")

is_dated = re.compile(r".+_mine_\d{4}-\d\d-\d\d(_\d+)?\.ipynb").fullmatch
"""Tells whether a file has the name of a notebook that was set aside."""


def set_aside(path: Path) -> Path:
    """Rename a notebook to ``NAME_mine_DATE.ipynb``, or with ``_2``, ``_3`` where that is taken.

    Returns
    -------
    Path
        The new name, which no file had before.
    """
    for number in itertools.count(1):
        again = "" if number == 1 else f"_{number}"
        mine = path.with_name(f"{path.stem}_mine_{date.today().isoformat()}{again}{path.suffix}")
        try:
            os.link(path, mine)  # takes the name, whoever else asks for it now
        except FileExistsError:
            continue
        except (OSError, NotImplementedError):  # a disk on which a file has but one name
            return path.rename(mine)
        try:
            path.unlink()
        except OSError:
            os.unlink(mine)
            raise
        return mine
    raise AssertionError(_("numbers do not end"))
