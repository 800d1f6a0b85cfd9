"""The handbook's errors: each program raises its message, and each is found by what people type."""

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import explain_tables
import nbformat
import pytest
from harness import LESSONS, NOTEBOOKS, ROOT, TABLE, execute, notebook
from support import skip

import simgpu
from course_utils import course, error_index, expect_error, explain
from course_utils.error_index import entries, find, matches_template
from course_utils.error_words import normalize

GROUPS = {
    "cpu": "",
    "sim": "import torch, simgpu; simgpu.enable(devices=2); "
    "given = {'torch': torch, 'device': torch.device('sim')}",
}
RUN = """
import json, sys, traceback, warnings
given = {}
#
for title, program in json.load(sys.stdin).items():
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        try:
            exec(compile(program, title, "exec"), {"__name__": "__main__", **given})
            said = ""
        except BaseException as error:
            said = "".join(traceback.format_exception(error))
    said += "".join(f"{w.category.__name__}: {w.message}\\n" for w in heard)
    if (dist := sys.modules.get("torch.distributed")) and dist.is_initialized():
        dist.destroy_process_group()
    print("\\n", json.dumps({title: said}))
"""


def started(folder, command, text=""):
    """Run a command in a folder where it can import the course; return the completed process."""
    env = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "PYTHONWARNINGS": "default",
        "OMP_NUM_THREADS": "1",
    }
    return subprocess.run(
        [sys.executable, *command], input=text, cwd=folder, env=env, capture_output=True, text=True,
        encoding="utf-8", timeout=240,
    )  # fmt: skip


@pytest.fixture(scope="module")
def said(tmp_path_factory):
    """Return a function that runs all programs of a group in one process, for their messages by title."""
    known = {}

    def of_group(where):
        if where not in known:
            jobs = json.dumps({e.title: e.program for e in entries() if e.where == where})
            code = RUN.replace("#\n", GROUPS[where] + "\n", 1)
            done = started(tmp_path_factory.mktemp(where), ["-c", code], jobs)
            lines = [line for line in done.stdout.splitlines() if line.startswith(' {"')]
            assert lines, done.stderr
            known[where] = {k: v for line in lines for k, v in json.loads(line).items()}
        return known[where]

    return of_group


@pytest.mark.slow
@pytest.mark.parametrize("entry", [e for e in entries() if e.program], ids=lambda e: e.title)
def test_a_program_raises_its_message(entry, said, tmp_path):
    if entry.where in GROUPS:
        if entry.where == "sim" and (reason := simgpu.unavailable_reason()):
            skip(reason, "2027-11-30")
        text = said(entry.where)[entry.title]
    else:
        (tmp_path / "train.py").write_text(entry.program, encoding="utf-8")
        torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
        done = started(tmp_path, [*(torchrun if entry.where == "ranks=2" else []), "train.py"])
        text = done.stdout + done.stderr
    assert any(matches_template(form, normalize(text)) for form in entry.forms), text[-2000:] or "nothing"


def test_each_entry_says_all_that_it_should(record_property):
    raised = [e for e in entries() if e.program]
    record_property(
        TABLE + "errors", f"{len(entries())} entries: {len(raised)} raised here, the others cited"
    )
    assert len(entries()) >= 210
    for entry in entries():
        assert entry.where in ("", "cpu", "cpu alone", "sim", "ranks=2"), entry.title
        assert entry.program or "](https://" in entry.source, entry.title
        assert min(len(entry.meaning), len(entry.fix)) > 20, entry.title
        assert re.search(r"\]\((?!http)[^)]+\)", entry.lesson), entry.title
    for what in ([e.title for e in entries()], [form for e in entries() for form in e.forms]):
        assert not {one for one in what if what.count(one) > 1}


def test_an_entry_of_another_form_is_named(tmp_path, monkeypatch):
    (tmp_path / "errors").mkdir()
    page = (ROOT / "handbook" / "errors" / "devices.md").read_text(encoding="utf-8")
    broken = page.replace("**Fix.** Install", "Install", 1)
    (tmp_path / "errors" / "devices.md").write_text(broken, encoding="utf-8")
    monkeypatch.setattr(error_index, "handbook", lambda: tmp_path)
    with pytest.raises(ValueError, match=r"devices\.md.*Torch not compiled with CUDA enabled"):
        entries.__wrapped__()


@pytest.mark.parametrize("entry", entries(), ids=lambda entry: entry.title)
def test_its_own_message_finds_it(entry):
    for form in entry.forms:
        assert entry in find(form.replace("…", "0x7f 12")), form


TYPED = {
    "cuda out of memory": "CUDA out of memory",
    "cant convert cuda tensor to numpy": "NumPy of a tensor on the GPU",
    "expected all tensors same divice": "Tensors on two devices",
    "unscale fp16 gradients error": "Attempting to unscale FP16 gradients",
    "why does bceloss not work with autocast": "BCELoss is unsafe to autocast",
    "device side assert": "Device-side assert triggered",
    "no kernel image availible": "No kernel image is available",
    "my training was killed exit code 137": "Killed, exit code 137",
    "target out of bounds": "A label that is no class",
    "torch not compiled with cuda": "Torch not compiled with CUDA enabled",
    "illegal memory acess": "An illegal memory access",
    "nvidia driver too old": "The NVIDIA driver is too old",
    "dict object has no attribute to": "A batch is no tensor",
    "mps out of memory": "MPS backend out of memory",
    "missing keys in state dict": "Missing keys in the state_dict",
    "unexpected key _orig_mod": "Every key begins with _orig_mod.",
    "pytorchstreamreader failed": "A cut-off checkpoint",
    "dataloader worker killed by signal": "A worker is killed",
    "cant reinitialize cuda in forked subprocess": "CUDA in a forked process",
    "nccl watchdog timeout": "NCCL: watchdog caught a collective operation timeout",
    "port in use EADDRINUSE": "Address already in use",
    "backward through the graph second time": "Backward a second time",
    "mat1 and mat2 shapes cannot be multiplied": "Shapes cannot be multiplied",
    "no working c++ compiler": "No C++ compiler",
    "RuntimeError: mat1 and mat2 shapes cannot be multiplied (64x512 and 2048x10)": (
        "Shapes cannot be multiplied"
    ),
    "RuntimeError: [gloo/unbound_buffer.cc:81] Timed out waiting 1800000ms for recv operation to complete": (
        "Gloo: timed out waiting"
    ),
    "[rank4]:[E1016 03:31:38 ProcessGroupNCCL.cpp:607] [Rank 4] Watchdog caught collective operation \
timeout: WorkNCCL(SeqNum=9141, OpType=_ALLGATHER_BASE, NumelIn=19008, NumelOut=152064, Timeout(ms)=1800000) \
ran for 600071 milliseconds before timing out.": "NCCL: watchdog caught a collective operation timeout",
    "not implemented for the MPS device": "MPS: an operator is not implemented",
    "gpu not detected": "No GPU is detected: torch.cuda.is_available() is False",
    "fork cuda subprocess": "CUDA in a forked process",
    "cannot find nccl": "NCCL without a GPU",
    "loss is nan fp16": "Gradients become nan, found by anomaly detection",
    "weights_only error loading checkpoint": "Weights only load failed: unsupported global",
    "segmentation fault dataloader": "A worker is killed",
    "model on cpu data on gpu": "Tensors on two devices",
    "gpu memory not freed": "CUDA out of memory",
    "kernel died": "Killed, exit code 137",
    "optimizer param group size mismatch": "The optimiser's state does not fit",
    "my training hangs": "Ranks call different collectives, and hang",
    "loss is nan after a few steps": "Gradients become nan, found by anomaly detection",
    "gpu not found": "No GPU is detected: torch.cuda.is_available() is False",
    "shm too small docker": "Bus error: shared memory is full",
    "dataloader worker killed bus error": "Bus error: shared memory is full",
    "training got stuck due to timeout from dataloader": "A worker takes too long",
    "loss is nan after few epochs amp": "Gradients become nan, found by anomaly detection",
    "loss nan mixed precision after some iterations": "Gradients become nan, found by anomaly detection",
    "watchdog caught collective operation time out allreduce": (
        "NCCL: watchdog caught a collective operation timeout"
    ),
    "no inf check recorded for this optimiser": "No inf checks were recorded",
    "expected scaler type float but found half": "Expected scalar type",
    "cannot pickle lambda dataloader windows num_workers": "A dataset that cannot be pickled",
    "weight only load failed numpy.core.multiarray.scalar": "Weights only load failed: unsupported global",
    "显存不够 CUDA out of memory 怎么办": "CUDA out of memory",
    "NCCL Watchdog 超时 两张卡训练": "NCCL: watchdog caught a collective operation timeout",
}


@pytest.mark.parametrize("typed", TYPED)
def test_what_people_type_finds_it(typed):
    assert TYPED[typed] in [entry.title for entry in find(typed)[:2]]


@pytest.mark.parametrize(
    "text",
    [
        "how to bake sourdough bread",
        "my code does not work, please help",
        "KeyError: 'price'",
        "flask server returns 500 internal error after a deploy with gunicorn workers",
        "my matplotlib figure is not showing in the notebook after plt.show",
        "AttributeError: 'NoneType' object has no attribute 'shape'",
        "FileNotFoundError: [Errno 2] No such file or directory: 'data.csv'",
        "error",
        "",
    ],
)
def test_what_is_not_there_is_not_found(text):
    assert find(text) == []


@pytest.fixture(scope="module")
def tables():
    """Return the tables of all questions of tests/explain_tables.py."""
    return explain_tables.tables()


@pytest.mark.everywhere
def test_messages_are_found_as_people_paste_them(tables, record_property):
    """Through noise, wrappers, aborts, logs and titles; in learners' words; nothing for what has no entry."""
    *asked, nothing = [row for table in tables for row in table]
    for row in asked:
        least = 0.9 if row.name == "cut" else 0.95
        assert row.first >= least * row.asked, "\n".join([str(row), *row.misses])
        assert row.wrong <= (0.05 if row.name == "cut" else 0.02) * row.asked, (
            str(row),
            row.misses,
        )
    assert nothing.wrong <= 0.02 * nothing.asked, nothing.misses
    record_property(TABLE + "explain", "; ".join(f"{row.name} {row.first}/{row.asked}" for row in asked))


@pytest.mark.parametrize("title", ["CUDA out of memory", "A label that is no class", "Size mismatch"])
def test_a_cause_is_told_before_what_stands_around_it(title):
    entry = next(entry for entry in entries() if entry.title == title)
    message = explain_tables.WRAPPED["ChildFailedError"](entry.forms[0].replace("…", "1.2 GiB"))
    first, *others = find(message)
    assert first is entry
    assert "ChildFailedError: where the true error stands" in [other.title for other in others]


def test_amds_entry_needs_hip_in_the_text():
    tail = explain_tables.CUDA_TAIL
    assert "HIP" not in find(f"RuntimeError: CUDA error: invalid argument{tail}")[0].title
    hip = find(f"RuntimeError: HIP error: invalid argument{tail.replace('CUDA', 'HIP')}")
    assert "ROCm: HIP error, and the override of the card's name" in [entry.title for entry in hip]


def test_a_chinese_page_has_a_chinese_half_of_each_heading():
    for entry in entries("zh"):
        assert re.search(r"[\u3400-\u9fff]", entry.title), entry.title


def test_a_whole_traceback_is_read_to_its_end():
    text = """Traceback (most recent call last):
  File "train.py", line 41, in <module>
    loss = loss_fn(model(images), labels)  # cuda out of memory?
RuntimeError: Expected all tensors to be on the same device, but got mat1 is on sim:1, different from \
other tensors on cpu (when checking argument in method wrapper_SIM_addmm)
"""
    assert find(text)[0].title == "One argument on another device"


def test_a_long_log_is_read_in_a_moment():
    line = "Loss.cu:250: nll_loss_forward_reduce_cuda_kernel_2d: block: [0,0,0], thread: [7,0,0] Assertion `t"
    log = f"{line} >= 0` failed.\n" * 5_000 + "RuntimeError: CUDA error: device-side assert triggered\n"
    began = time.perf_counter()
    assert "Device-side assert triggered" in [entry.title for entry in find(log)]
    assert time.perf_counter() - began < 10


def test_the_deliberate_errors_of_the_lessons_are_here():
    """But for those that are the course's own, or Python's."""
    own = {"trained_model", "real clock", "rank 0 waits", "rank 1 waits in all_reduce"}
    said = "\n".join(form for entry in entries() for form in entry.forms)
    for lesson in LESSONS:
        cells = nbformat.read(NOTEBOOKS / lesson.file, as_version=4).cells
        source = "\n".join(cell.source for cell in cells if cell.cell_type == "code")
        for pattern in re.findall(r'expect_error\([^"\n]*"([^"]+)"', source):
            assert pattern in own or re.search(pattern, said), (lesson.id, pattern)


# --- explain(), in a cell and in a terminal


@pytest.mark.slow
def test_a_cell_explains_the_error_of_the_cell_before(tmp_path):
    (tmp_path / "05_mixed_precision.ipynb").touch()
    cells = (
        "from course_utils import expect_error, explain\nimport torch\nexplain()",
        "torch.ones(2, dtype=torch.bfloat16).numpy()",
        "explain()",
        "with expect_error(RuntimeError): torch.device('gpu')\nexplain()",
        "explain('no such thing as a pineapple')",
    )
    nb = execute(notebook(*cells), tmp_path, PYTHONPATH=str(ROOT))
    shown = [cell.outputs[-1].get("data", {}).get("text/markdown", "") for cell in nb.cells]
    assert "Nothing has failed" in shown[0]
    assert "NumPy has no bfloat16" in shown[2] and "[05](05_mixed_precision.ipynb)" in shown[2]
    page = course.load_course().page
    assert f"({page('handbook/errors/precision.md')}#numpy-has-no-bfloat16)" in shown[2]
    assert "A device name that PyTorch does not know" in shown[3]
    assert f"({page('notebooks/01_devices.ipynb')})" in shown[3]
    assert shown[4] == error_index.NOTHING


def test_an_error_or_a_text_can_be_given(capsys, monkeypatch):
    monkeypatch.setattr(sys, "last_value", None, raising=False)
    explain()
    assert "Nothing has failed" in capsys.readouterr().out
    explain(ValueError("Attempting to unscale FP16 gradients."))
    assert "Remove `.half()`" in capsys.readouterr().out
    cause = RuntimeError("wrapped by a library")
    cause.__cause__ = TypeError("Got unsupported ScalarType BFloat16")
    explain(cause)
    assert "NumPy has no bfloat16 (handbook/errors/precision.md" in capsys.readouterr().out


@pytest.mark.slow
def test_an_error_in_a_checked_answer_is_the_last_one(capsys, monkeypatch):
    from course_utils.exercises import lesson

    monkeypatch.setattr(sys, "last_value", None, raising=False)

    def speedup(cpu_seconds, device_seconds):
        raise RuntimeError("mat1 and mat2 must have the same dtype, but got Float and Half")

    lesson("01").speedup.check(speedup)
    capsys.readouterr()
    explain()
    assert "A matrix product of two types" in capsys.readouterr().out
    with expect_error(ZeroDivisionError):
        1 / 0  # noqa: B018
    explain()
    assert error_index.NOTHING in capsys.readouterr().out


def asked(*words, text=""):
    """Run ``explain`` in a Python without site-packages; return the completed process."""
    return started(ROOT, ["-S", "-m", "course_utils", "explain", *words], text)


def test_the_command_needs_no_package():
    done = asked("CUDA error: device-side assert triggered")
    assert done.returncode == 0 and not done.stderr
    assert "handbook/errors/driver.md#device-side-assert-triggered" in done.stdout
    assert "notebooks/02_moving_data.ipynb" in done.stdout
    path = re.search(r"\((handbook/[^#)]+)", done.stdout)[1]
    assert Path(ROOT, path).is_file()


def test_the_command_reads_what_is_piped_in():
    done = asked(text="Traceback …\nAssertionError: No inf checks were recorded for this optimizer.\n")
    assert done.returncode == 0 and "No inf checks were recorded" in done.stdout
    assert asked("sourdough", "bread").returncode == 1
    assert asked().returncode == 2
