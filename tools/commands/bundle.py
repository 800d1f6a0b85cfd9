"""``bundle``: pack the course into one zip that needs neither GitHub nor, if asked, a network."""

from __future__ import annotations

import argparse
import os
import re
import shutil
import sys
import tempfile
import time
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from course_utils.cli import bootstrap, torch_build
from course_utils.cli.bootstrap import ROOT, WHEELHOUSE
from course_utils.cli.faults import SetupError
from course_utils.cli.git import Clone
from course_utils.cli.installer import Installer
from course_utils.files import replacing
from tools.commands import fail

NEEDS = ("pip",)
FOLDER = "pytorch-gpu-course"  # the top-level folder in the zip
PACKED = {".whl", ".npz", ".png", ".gz"}  # compressed already

START = """\
GPU Training with PyTorch, commit {commit} of {day}.

On a computer
    Unpack this zip, open a terminal in the folder {folder}, and type
        python3 -m course_utils lab          (on Windows: py -m course_utils lab)
    {network}

In Colab, without GitHub
    1. File > Upload notebook: a lesson from the folder notebooks.
    2. Open the Files pane at the left, and drop {wheel} there.
    3. Run the lesson from the top: its first cell finds the file.

In Kaggle, with the internet off
    1. Create > New Notebook, then File > Import Notebook: a lesson from the folder notebooks.
    2. Add Input > Upload: a new dataset with {wheel}.
    3. Run the lesson from the top: its first cell finds the file.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's options to the parser."""
    parser.add_argument(
        "--output",
        type=Path,
        metavar="FILE",
        help="the zip to write (default: dist/pytorch-gpu-course.zip)",
    )
    parser.add_argument(
        "--wheelhouse",
        nargs="?",
        type=Path,
        const=ROOT / "dist" / WHEELHOUSE,
        metavar="FOLDER",
        help="add every package that the course needs on a system and a Python like these. FOLDER "
        "(default: dist/wheelhouse) keeps them: call this with several Pythons to serve them all",
    )
    parser.add_argument(
        "--extra",
        choices=bootstrap.EXTRAS,
        default="lab",
        help="with --wheelhouse: the packages for lab (the default), for test, or for all there is",
    )
    parser.add_argument(
        "--torch",
        metavar="cpu|cuda|SPEC",
        default="cpu",
        help="with --wheelhouse: the build of PyTorch, as for lab (default: cpu, the smallest)",
    )


def main(args: argparse.Namespace, root: Path = ROOT) -> int:
    """Write the course's last commit to a zip file, with a wheel of the course.

    Returns
    -------
    int
        0 if it was written, 1 if a file cannot be, 2 for invalid options or an output that is no zip.

    Raises
    ------
    SetupError
        If this is no git clone, or pip fails.
    """
    if args.wheelhouse is None and (args.extra != "lab" or args.torch != "cpu"):
        return fail("--extra and --torch go with --wheelhouse.", 2)
    torch = torch_build.torch_choice(args.torch)
    if torch.startswith("keep "):
        return fail("--torch keep is no choice here: a bundle holds its own PyTorch.", 2)
    output = args.output or root / "dist" / f"{FOLDER}.zip"
    if output.exists() and not zipfile.is_zipfile(output):
        return fail(f"{output} is there and is no zip: name another file.", 2)
    if not (root / ".git").exists():
        raise SetupError(
            "This copy of the course did not come through git, so no new zip can be made of it: copy "
            "the zip it came from, or call this in a git clone."
        )
    try:
        with tempfile.TemporaryDirectory() as scratch, replacing(output) as part:
            part.touch()  # fails early if the folder is not writable
            summary = _bundle(args, root, Path(scratch), torch, part)
    except OSError as error:
        return fail(
            f"The zip was not written: {error.strerror} ({error.filename or output}). Name another "
            "place with --output FILE.",
            1,
        )
    print(f"{output}: {output.stat().st_size / 1e6:.1f} MB, {summary}")
    return 0


def _bundle(args: argparse.Namespace, root: Path, scratch: Path, torch: str, output: Path) -> str:
    """Write the zip; return a summary of its contents."""
    clone = Clone(root)
    day, seconds, commit = clone.git("log", "-1", "--format=%cs %ct %h").split()
    if edited := clone.changed_paths():
        print(f"{len(edited)} file{'s' * (len(edited) > 1)} not committed: left out.")
    modes = _extract_commit(clone, scratch / "source.zip", scratch / "source")
    log = root / "dist" / "bundle.log"
    log.parent.mkdir(exist_ok=True)
    env = os.environ | {"SOURCE_DATE_EPOCH": seconds}
    log.write_text("", encoding="utf-8")
    pip = Installer("pip", [sys.executable, "-X", "utf8", "-m", "pip"], env, log, root)
    files = {name: scratch / "source" / name for name in modes}
    lessons = [name for name in modes if re.fullmatch(r"notebooks/[^/]+\.ipynb", name)]
    # Without git, `reset` and `catch_up` read these.
    files |= {f"course_utils/{name}": files[name] for name in lessons}
    print("Building the course's own wheel.", flush=True)
    make_wheels(pip, ["--no-deps", str(scratch / "source")], scratch / "wheel")
    (wheel,) = (scratch / "wheel").glob("*.whl")
    files[wheel.name] = wheel
    network = "The first start fetches PyTorch and JupyterLab, and needs a network."
    if args.wheelhouse is not None:
        _fill_wheelhouse(pip, args.wheelhouse, bootstrap.requirements(scratch / "source", args.extra), torch)
        files |= {f"{WHEELHOUSE}/{path.name}": path for path in args.wheelhouse.glob("*.whl")}
        network = f"No network is needed with {', '.join(bootstrap.pythons(args.wheelhouse))}."
    files["START.txt"] = scratch / "START.txt"
    words = {"commit": commit, "day": day, "folder": FOLDER, "wheel": wheel.name}
    text = START.format(**words, network=network)
    files["START.txt"].write_text(text, encoding="utf-8", newline="\n")
    _write_zip(output, files, modes, int(seconds))
    return f"{len(files)} files. {network}"


def _extract_commit(clone: Clone, packed: Path, folder: Path) -> dict[str, int]:
    """Extract the last commit to a folder; return each file's permission bits by its name."""
    words = ("-c", "core.autocrlf=false", "archive", "--format=zip", "-o", str(packed), "HEAD")
    clone.git(*words)
    with zipfile.ZipFile(packed) as archive:
        archive.extractall(folder)
        files = [info for info in archive.infolist() if not info.is_dir()]
    return {i.filename: 0o755 if i.external_attr >> 16 & 0o100 else 0o644 for i in files}


def make_wheels(pip: Installer, what: Sequence[str], folder: Path) -> None:
    """Run ``pip wheel``: store the wheels of requirements and of their dependencies in a folder.

    ``what`` are requirements and further options of pip.
    """
    exact = bootstrap.constraints(pip.root, pip.log.parent, hashes=False)  # pip would require hashes of all
    pip.run("wheel", *exact, "--wheel-dir", str(folder), *what)


def _fill_wheelhouse(pip: Installer, wheelhouse: Path, wanted: list[str], torch: str) -> None:
    """Add the wheels that the requirements need on this Python to a wheelhouse, with pip and uv.

    ``torch`` is the build of PyTorch as `torch_build.torch_choice` returns it.
    """
    print(f"Fetching packages (torch: {torch}) into {wheelhouse}.", flush=True)
    wheelhouse.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=wheelhouse) as folder:
        fresh = Path(folder)
        links = [word for place in (wheelhouse, fresh) for word in ("--find-links", str(place))]
        everything = [*wanted, "pip", "uv"]
        index = torch_build.index_url(torch)
        if index:  # PyTorch's index has no other packages: two calls
            of_torch = [item for item in wanted if bootstrap.name_of(item) in torch_build.PACKAGES]
            make_wheels(pip, [*links, "--index-url", index, *of_torch], fresh)
            (built,) = fresh.glob("torch-*.whl")
            everything.append(f"torch=={built.name.split('-')[1]}")
        elif torch not in ("auto", "cpu", "cuda"):
            everything.append(torch)
        make_wheels(pip, [*links, *everything], fresh)
        for path in fresh.glob("*.whl"):
            path.replace(wheelhouse / path.name)


def _write_zip(output: Path, files: Mapping[str, Path], modes: Mapping[str, int], when: int) -> None:
    """Write a zip file; the same files give the same bytes. ``when`` is all entries' Unix time."""
    with zipfile.ZipFile(output, "w") as packed:
        for name, path in sorted(files.items()):
            info = zipfile.ZipInfo(f"{FOLDER}/{name}", time.gmtime(when)[:6])
            info.create_system = 3  # Unix, whichever system packs it
            info.external_attr = (0o100000 | modes.get(name, 0o644)) << 16
            stored = path.suffix in PACKED
            info.compress_type = zipfile.ZIP_STORED if stored else zipfile.ZIP_DEFLATED
            info.file_size = path.stat().st_size
            with path.open("rb") as source, packed.open(info, "w") as target:
                shutil.copyfileobj(source, target, 1 << 20)
