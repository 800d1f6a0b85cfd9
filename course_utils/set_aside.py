"""Rename a learner's notebook to a dated name, before a fresh one takes its place."""

from __future__ import annotations

import itertools
import os
import re
from datetime import date
from pathlib import Path

from course_language import _

RELOAD = _("If it is open in JupyterLab, choose File > Reload Notebook from Disk there.")

is_dated = re.compile(r".+_mine_\d{4}-\d\d-\d\d(_\d+)?\.ipynb").fullmatch
"""Return a match if a file's name is that of a notebook that `set_aside` renamed, else None."""


def set_aside(path: Path) -> Path:
    """Rename a notebook to ``NAME_mine_YYYY-MM-DD.ipynb``, or with ``_2``, ``_3`` if that exists.

    The date is today's; the folder stays. OSError if it cannot be renamed.

    Returns
    -------
    Path
        The new path; no existing file is overwritten.
    """
    for number in itertools.count(1):
        suffix = "" if number == 1 else f"_{number}"
        dated = path.with_name(f"{path.stem}_mine_{date.today().isoformat()}{suffix}{path.suffix}")
        try:
            os.link(path, dated)  # atomic: fails if another process has created that name
        except FileExistsError:
            continue
        except (OSError, NotImplementedError):  # a file system without hard links
            return path.rename(dated)
        try:
            path.unlink()
        except OSError:
            os.unlink(dated)
            raise
        return dated
    raise AssertionError(_("numbers do not end"))
