"""Known answers to 04.save_atomic: wrong ones by their diagnosis, right ones by a name.

Of several faults the worst is named.
"""

import os
import shutil
import tempfile
from pathlib import Path

import torch


def _replaced_even_when_it_failed(state, path):
    new = path.with_name("new.pt")
    try:
        with open(new, "wb") as file:
            torch.save(state, file)
            os.fsync(file.fileno())
    finally:
        os.replace(new, path)


def _elsewhere(state, path):
    with tempfile.TemporaryDirectory() as folder:
        new = Path(folder) / path.name
        with open(new, "wb") as file:
            torch.save(state, file)
            os.fsync(file.fileno())
        os.replace(new, path)


def _cleared_when_it_failed(state, path):
    handle, name = tempfile.mkstemp(dir=path.parent)
    try:
        with open(handle, "wb") as file:
            torch.save(state, file)
            os.fsync(file.fileno())
        os.replace(name, path)
    finally:
        Path(name).unlink(missing_ok=True)


def _old_names_cleared_and_synced_folder(state, path):
    for old in path.parent.glob("*.part"):
        old.unlink()
    handle, name = tempfile.mkstemp(dir=path.parent, suffix=".part")
    with open(handle, "wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())
    shutil.move(name, path)
    if os.name == "posix":
        folder = os.open(path.parent, os.O_RDONLY)
        os.fsync(folder)
        os.close(folder)


_NAME, _REPLACE = 'new = path.with_name(path.name + ".new")', "os.replace(new, path)"
_SYNC = "os.fsync(file.fileno())"
WRONG = {
    "overwrites": (_replaced_even_when_it_failed, {_NAME: f'path.write_bytes(b"")\n{_NAME}'}),
    "no-fsync": (
        {_SYNC: ""},
        {_SYNC: "", _REPLACE: f'{_REPLACE}\nwith open(path, "rb+") as file:\n    {_SYNC}'},
    ),
    "other-folder": _elsewhere,
    "gap": (
        {_REPLACE: "path.unlink(missing_ok=True)\nos.rename(new, path)"},
        {_SYNC: "", _REPLACE: "path.unlink(missing_ok=True)\nnew.rename(path)"},
    ),
    "leftovers": (
        {_NAME: "handle, new = tempfile.mkstemp(dir=path.parent)", "open(new": "open(handle"},
        _cleared_when_it_failed,
    ),
}
RIGHT = {
    **{
        f"{call}, where the system has it": {_SYNC: made}
        for call, made in {"fdatasync": "os.fdatasync(file.fileno())", "sync": "os.sync()"}.items()
        if hasattr(os, call)
    },
    **(
        {
            "each write waits for the disk": {
                _SYNC: "",
                'open(new, "wb")': "open(os.open(new, os.O_CREAT | os.O_WRONLY | os.O_TRUNC | os.O_DSYNC), "
                '"wb")',
            }
        }
        if hasattr(os, "O_DSYNC")
        else {}
    ),
    "another name each time, the old ones cleared, a synced folder": _old_names_cleared_and_synced_folder,
    "arguments by name, a file handed to fsync": {
        _SYNC: "os.fsync(fd=file)",
        _REPLACE: "os.replace(src=new, dst=path)",
    },
    "a path's own move, with the name it gives back": {_REPLACE: "assert new.rename(target=path) == path"},
}
