"""Directories for lessons' checkpoints that outlive a session: local, on Kaggle, or in Google Drive."""

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

_drive_dir: Path | None = None  # the course's directory in Google Drive, once keep(drive=True) has mounted it


def keep(lesson_id: str, *, drive: bool = False) -> Path:
    """Create and return the directory for a lesson's checkpoints; in the cloud, print how long it persists.

    It is ``work/<lesson_id>`` in the working directory, or in ``/kaggle/working`` on Kaggle. The environment
    variable ``COURSE_WORK`` replaces ``work``. If the directory cannot be created, a temporary one is
    returned and a message printed.

    Parameters
    ----------
    lesson_id
        The lesson's number, such as ``"03"``.
    drive
        In Colab: mount Google Drive (Colab asks for permission) and use ``pytorch-gpu-course/<lesson_id>``
        there, for this and all later calls in the session; the progress file moves there too. If mounting
        fails, print the reason and use the session's disk. Elsewhere it only prints a message.

    Raises
    ------
    ValueError
        If there is no such lesson.
    """
    try:
        load_course().lesson(lesson_id)
    except KeyError as error:
        raise ValueError(error.args[0]) from None
    platform = where()
    if drive and platform == "colab":
        _mount_drive()
    elif drive:
        print(_("Only Colab can keep files in your Drive; here the folder is on this machine."))
    folder = checkpoint_dir(lesson_id)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        temporary_dir = Path(tempfile.mkdtemp(prefix=f"lesson-{lesson_id}-"))
        print(
            _("{folder} cannot be made ({strerror}); {lost} is used, and not kept for long.").format(
                folder=folder, strerror=error.strerror, lost=temporary_dir
            )
        )
        return temporary_dir
    if platform == "kaggle":
        print(
            _("{folder} is kept if you choose Save Version, or Settings > Persistence > Files only.").format(
                folder=folder
            )
        )
    elif platform == "colab" and _drive_dir is None:
        print(
            _(
                "{folder} is on this session's disk, and is lost when the session ends. To keep it in "
                'your Drive: keep("{lesson_id}", drive=True)'
            ).format(folder=folder, lesson_id=lesson_id)
        )
    return folder


def checkpoint_dir(lesson_id: str) -> Path:
    """Return the directory that `keep` returns for a lesson, without creating it or mounting Drive."""
    if _drive_dir is not None:
        return _drive_dir / lesson_id
    root = KAGGLE if where() == "kaggle" and KAGGLE.is_dir() else Path()
    return Path(os.environ.get("COURSE_WORK") or root / "work") / lesson_id


def _mount_drive() -> None:
    """Mount Google Drive (Colab asks the learner), and move the progress file there; on failure print why."""
    global _drive_dir
    try:
        from google.colab import drive

        drive.mount(str(DRIVE))
        my_drive = DRIVE / "MyDrive"
        if not my_drive.is_dir():
            raise FileNotFoundError(f"{my_drive} is not there")
        folder = my_drive / "pytorch-gpu-course"
        folder.mkdir(exist_ok=True)
        progress_file.move_to(folder / "progress.jsonl")
    except Exception as error:  # noqa: BLE001  (Colab raises errors of its own, where you decline too)
        reason = next(iter(str(error).splitlines()), "") or type(error).__name__
        print(
            _("Your Drive was not opened ({reason}). Run the cell again to be asked again.").format(
                reason=reason
            )
        )
        return
    _drive_dir = folder
    print(_("Kept in your Drive, in {folder}: this folder, and your progress.").format(folder=folder))
