"""Where a lesson keeps what a session must not take along: this disk, Kaggle's folder, your Drive."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from course_language import _

from . import progress_file
from .course import load_course
from .this_machine import where

KAGGLE = Path("/kaggle/working")
DRIVE = Path("/content/drive")

_in_drive: Path | None = None  # the course's folder in your Drive, once you have asked for it


def keep(lesson_id: str, *, drive: bool = False) -> Path:
    """Return the folder for what a lesson must not lose, such as checkpoints; make it if need be.

    On your own machine it is ``work/03`` beside the notebook, in Kaggle the same in the working folder;
    the variable ``COURSE_WORK`` names another place than ``work``.
    In Colab everything is lost with the session, unless you ask for your Drive.

    Parameters
    ----------
    lesson_id
        The lesson's number, such as ``"03"``.
    drive
        In Colab: keep it in your Google Drive, in ``pytorch-gpu-course``. Colab asks you first. Your
        progress is kept there too from then on. Where it does not work, one sentence says so, and the
        folder is that of the session.

    Raises
    ------
    ValueError
        Where there is no such lesson.
    """
    try:
        load_course().lesson(lesson_id)
    except KeyError as error:
        raise ValueError(error.args[0]) from None
    platform = where()
    if drive and platform == "colab":
        _ask_for_drive()
    elif drive:
        print(_("Only Colab can keep files in your Drive; here the folder is on this machine."))
    folder = kept(lesson_id)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        lost = Path(tempfile.mkdtemp(prefix=f"lesson-{lesson_id}-"))
        print(
            _("{folder} cannot be made ({strerror}); {lost} is used, and not kept for long.").format(
                folder=folder, strerror=error.strerror, lost=lost
            )
        )
        return lost
    if platform == "kaggle":
        print(
            _("{folder} is kept if you choose Save Version, or Settings > Persistence > Files only.").format(
                folder=folder
            )
        )
    elif platform == "colab" and _in_drive is None:
        print(
            _(
                "{folder} is on this session's disk, and is lost when the session ends. To keep it in "
                'your Drive: keep("{lesson_id}", drive=True)'
            ).format(folder=folder, lesson_id=lesson_id)
        )
    return folder


def kept(lesson_id: str) -> Path:
    """Return the folder that `keep` gives, without making it or asking for anything."""
    if _in_drive is not None:
        return _in_drive / lesson_id
    root = KAGGLE if where() == "kaggle" and KAGGLE.is_dir() else Path()
    return Path(os.environ.get("COURSE_WORK") or root / "work") / lesson_id


def _ask_for_drive() -> None:
    """Mount the learner's Drive, with their consent, and keep progress there too."""
    global _in_drive
    try:
        from google.colab import drive

        drive.mount(str(DRIVE))
        mine = DRIVE / "MyDrive"
        if not mine.is_dir():
            raise FileNotFoundError(f"{mine} is not there")
        folder = mine / "pytorch-gpu-course"
        folder.mkdir(exist_ok=True)
        progress_file.move(folder / "progress.jsonl")
    except Exception as error:  # noqa: BLE001  (Colab raises errors of its own, where you decline too)
        reason = next(iter(str(error).splitlines()), "") or type(error).__name__
        print(
            _("Your Drive was not opened ({reason}). Run the cell again to be asked again.").format(
                reason=reason
            )
        )
        return
    _in_drive = folder
    print(_("Kept in your Drive, in {folder}: this folder, and your progress.").format(folder=folder))
