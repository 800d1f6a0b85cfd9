"""Whatever joins a process group on GPUs has chosen its own GPU before: NCCL takes the current one."""

import re
import runpy
import sys
from pathlib import Path

import nbformat
import pytest
import torch
import torch.distributed as dist

ROOT = Path(__file__).parents[1]
CALL = re.compile(r"^[^#`\n]*?\binit_process_group\(", re.MULTILINE)
NO_GPU = re.compile(r'\s*(?:backend=)?["\'](?:gloo|fake)["\']|.*\bworld_size=1\b')
ARGUMENTS = {
    "tools/records/ddp_worker.py": ["32"],
    "notebooks/10_capstone.ipynb: two_ranks.py": ["{}", "cuda", "1"],
}
"""What a script gets on its command line, where it asks for something."""


class Begun(BaseException):
    """Raised in place of joining the process group, to end a script there."""


def joins(source: str) -> bool:
    """Return whether code initialises a process group that may span several GPUs."""
    return any(not NO_GPU.match(source, call.end()) for call in CALL.finditer(source))


def scripts() -> dict[str, str]:
    """Return code that joins a process group: files, cells that write files, and examples in pages."""
    found = {}
    for room in ("course_lessons", "course_utils", "handbook", "simgpu", "tests", "tools"):
        for path in (ROOT / room).rglob("*.py"):
            if joins(text := path.read_text(encoding="utf-8")) and path != Path(__file__):
                found[path.relative_to(ROOT).as_posix()] = text
    for path in (ROOT / "handbook").glob("**/*.md"):
        for number, block in enumerate(
            re.findall(r"^```python[^\n]*\n(.*?)^```", path.read_text("utf-8"), re.M | re.S)
        ):
            if "zh" not in path.parts and joins(block):
                found[f"{path.relative_to(ROOT).as_posix()}: example {number}"] = block
    for path in (ROOT / "notebooks").glob("*.ipynb"):
        for name, source in _cells(path):
            if joins(source):
                found[f"notebooks/{path.name}: {name}"] = source
    return found


def _cells(path: Path) -> list[tuple[str, str]]:
    """Return the code of a notebook's cells, with the file name for cells that write a file."""
    cells = []
    for cell in nbformat.read(path, as_version=4).cells:
        if cell.cell_type == "code":
            first, _, rest = cell.source.partition("\n")
            written = first.startswith("%%writefile work/")
            cells.append((first.rpartition("/")[2], rest) if written else (cell.id, cell.source))
    return cells


@pytest.fixture
def begun(monkeypatch):
    """Make this process rank 1 on a machine with two GPUs; return a dict of its device and ``device_id``."""
    seen = {"current": 0, "device_id": None}

    def choose(device):
        seen["current"] = device if isinstance(device, int) else torch.device(device).index

    def join(*_, device_id=None, **__):
        seen["device_id"] = device_id
        raise Begun

    for name, value in {"LOCAL_RANK": 1, "RANK": 1, "WORLD_SIZE": 2, "LOCAL_WORLD_SIZE": 2}.items():
        monkeypatch.setenv(name, str(value))
    monkeypatch.setenv("DEVICE", "cuda")
    monkeypatch.setattr(dist, "init_process_group", join)
    for module, choice in ((torch.cuda, "set_device"), (torch.accelerator, "set_device_index")):
        monkeypatch.setattr(module, choice, choose)
        monkeypatch.setattr(module, "device_count", lambda: 2)
        monkeypatch.setattr(module, "is_available", lambda: True)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda *_, **__: torch.device("cuda"))
    precision = torch.get_float32_matmul_precision()
    yield seen
    torch.set_float32_matmul_precision(precision)  # the programs ask for TF32


def run(name: str, source: str, folder: Path) -> None:
    """Run a script until it joins the process group; if it only defines ``start``, call that."""
    if name.startswith("course_lessons/"):  # a part of a package: it is imported
        __import__(module := name.removesuffix(".py").replace("/", "."))
        sys.modules[module].start()
    file = folder / "script.py"
    file.write_text(source, encoding="utf-8")
    runpy.run_path(str(file), run_name="__main__").get("start", lambda: None)()


@pytest.mark.parametrize("name", scripts())
def test_a_script_chooses_its_gpu_before_it_joins(name, begun, tmp_path, monkeypatch):
    if ": " in name and name.startswith("notebooks/"):
        for other, source in _cells(ROOT / name.partition(": ")[0]):
            if other.endswith(".py"):
                (tmp_path / other).write_text(source, encoding="utf-8")
    known = set(sys.modules)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "argv", [name, *ARGUMENTS.get(name, [])])
    with pytest.raises(Begun):
        run(name, scripts()[name], tmp_path)
    for module in set(sys.modules) - known:
        if getattr(sys.modules[module], "__file__", None) and str(tmp_path) in str(
            sys.modules[module].__file__
        ):
            del sys.modules[module]
    assert begun["current"] == 1, "on cuda:0, as rank 0 is"
    assert begun["device_id"] in (None, torch.device("cuda", 1))


def test_what_joins_is_found_and_one_that_forgets_is_seen(begun, tmp_path):
    assert {"notebooks/06_several_gpus.ipynb: parallel.py", "course_lessons/lesson11/ranks.py"} < {*scripts()}
    assert not joins('dist.init_process_group("gloo")')
    assert not joins("# Call init_process_group(backend) first.")
    assert joins('dist.init_process_group("gloo")\ndist.init_process_group()')
    forgets = 'import torch.distributed as dist\ndist.init_process_group("nccl")\n'
    assert joins(forgets)
    with pytest.raises(Begun):
        run("forgets.py", forgets, tmp_path)
    assert begun["current"] == 0
