"""Real processes through torchrun: what a learner reads, and that none of them is left behind."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
import torch
from support import skip

from course_lessons.shared import launch
from course_lessons.shared.launch import prepare, processes, torchrun
from course_lessons.shared.launch.output import Output, exits, group

ROOT = Path(__file__).resolve().parents[1]
LIMIT = 90  # seconds for a launch that should end by itself, on a busy machine

SCRIPT = """
import gc, os, sys, time
import torch
import torch.distributed as dist

what = sys.argv[1]
dist.init_process_group("gloo")
rank = dist.get_rank()
print("start", what)

def classify():
    raise ValueError("no such digit: 11")

if what == "plain":
    from course_utils.progress_file import record_attempt

    record_attempt("06.test", "right")
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 2))
    model(torch.ones(8, 4)).sum().backward()
    print("rank", rank, "says", *sys.argv[2:])
    print("threads", os.environ["OMP_NUM_THREADS"])
    print("no ending", end="")
    print("10 %\\r100 %", file=sys.stderr)
    del model
if what == "raise":
    if rank == 1:
        classify()
    dist.barrier()
if what == "hang":
    open(f"hangs_{rank}", "w").close()
    if rank == 0:
        dist.barrier()
    time.sleep(1000)
if what == "steps":
    begin = len(open("steps").read()) if os.path.exists("steps") else 0
    for step in range(begin, 5):
        dist.all_reduce(torch.ones(3))
        print("step", step)
        if rank == 0:
            open("steps", "a").write("x")
        time.sleep(0.2)
gc.collect()
dist.barrier()
dist.destroy_process_group()
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ein Ordner für 5")
    (folder / "work").mkdir()
    (folder / "work" / "train.py").write_text(SCRIPT, encoding="utf-8")
    return folder


@pytest.fixture
def here(folder, monkeypatch):
    monkeypatch.chdir(folder)
    for name in ("steps", "hangs_0", "hangs_1"):
        (folder / name).unlink(missing_ok=True)
    return folder


@pytest.fixture(autouse=True)
def mark(monkeypatch):
    """Set an environment variable in all processes of a test; after it, assert that none of them is alive."""
    mark = os.urandom(8).hex()
    monkeypatch.setenv("TEST_LAUNCH", mark)
    yield mark
    assert survivors(mark) == []


def survivors(mark):
    found = []
    for process in psutil.process_iter():
        try:
            if process.pid != os.getpid() and process.environ().get("TEST_LAUNCH") == mark:
                found.append(process)
        except (psutil.Error, OSError):
            continue
    return found


def go(*arguments, **options):
    return launch.run("work/train.py", *arguments, **{"seconds": LIMIT, **options})


# Real launches


@pytest.mark.slow
def test_a_launch_shows_what_the_ranks_said(here, monkeypatch, capfd):
    progress = Path(os.environ["COURSE_PROGRESS"])
    monkeypatch.setenv("PATH", "")  # no torchrun to be found
    monkeypatch.setenv("PET_NPROC_PER_NODE", "7")  # torchrun would take options from these
    monkeypatch.setattr(prepare, "usable_cores", lambda: 7)
    done = go("plain", "two words")
    printed = capfd.readouterr().out.splitlines()
    assert printed == [
        "$ torchrun --standalone --nproc-per-node=2 work/train.py plain 'two words'",
        "all ranks | start plain",
        "rank 0 | rank 0 says two words",
        "rank 1 | rank 1 says two words",
        "all ranks | threads 3",
        "all ranks | 100 %",
        "all ranks | no ending",
    ]
    assert done.ok and done.error is None and done.attempts == 1 and done.stopped == ""
    assert done.lines[1][:2] == ["start plain", "rank 1 says two words"]
    assert 0 < done.seconds < LIMIT
    assert not progress.exists(), "the ranks wrote into the learner's progress"


@pytest.mark.slow
def test_an_error_on_the_second_of_two_nodes_is_shown_once(here, capfd):
    done = go("raise", ranks=2, nodes=2, kill=launch.Kill(rank=0, after="never said"))
    assert not done.ok and done.stopped == ""
    assert (done.error.rank, done.error.kind) == (1, "ValueError")
    lines = SCRIPT.splitlines()
    called, raised = lines.index("        classify()") + 1, lines.index("def classify():") + 2
    command, *printed = capfd.readouterr().out.splitlines()
    assert "--nnodes=2 --rdzv-backend=c10d --rdzv-endpoint=127.0.0.1:" in command
    assert command.endswith("# on each of 2 nodes")
    assert printed == [
        "all ranks | start raise",
        "rank 1 stopped with ValueError: no such digit: 11",
        f"    train.py, line {called}: classify()",
        f'    train.py, line {raised}: raise ValueError("no such digit: 11")',
        "The other ranks were stopped.",
        "No rank said 'never said', so none was killed.",
    ]


@pytest.mark.slow
def test_a_killed_rank_is_started_again_and_resumes(here, capfd):
    without_libuv = {"USE_LIBUV": "0"}  # as on Windows
    kill = launch.Kill(rank=1, after="step 2")
    done = go("steps", restarts=1, kill=kill, environment=without_libuv)
    printed = capfd.readouterr().out
    assert done.ok and done.attempts == 2, printed
    assert printed.count("rank 1 was killed by the signal SIGKILL.") == 1
    assert "memory" not in printed  # the test killed it
    first, second = printed.split("torchrun started all ranks again: attempt 2.")
    assert "step 0" in first and "step 4" not in first
    assert "step 0" not in second and "all ranks | step 4" in second
    assert done.lines[0].count("start steps") == 2


@pytest.mark.slow
def test_a_hang_ends_at_the_limit(here, monkeypatch, capfd):
    def clock():  # once both ranks hang, there is nothing to wait for
        hang = all((here / f"hangs_{rank}").exists() for rank in (0, 1))
        return time.monotonic() + LIMIT * hang

    monkeypatch.setattr(torchrun, "time", SimpleNamespace(monotonic=clock, sleep=time.sleep))
    done = go("hang")
    printed = capfd.readouterr().out
    assert not done.ok and done.stopped == "time limit" and done.error is None
    assert "Stopped at the time limit of " in printed
    assert "rank 0 still ran; it said last: start hang" in printed
    assert "A collective that not every rank calls waits for ever." in printed


def start_hanging(folder, mark):
    """Start a Python that launches two ranks which never end; return it once they run."""
    if os.name != "posix":
        skip("signals for one process are POSIX's", until="2027-11-30")
    code = (
        "import signal\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)  # a test run may ignore Ctrl-C\n"
        "from course_lessons.shared import launch\nlaunch.run('work/train.py', 'hang', seconds=300)"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
    )
    end = time.monotonic() + LIMIT
    while not all((folder / f"hangs_{rank}").exists() for rank in (0, 1)):
        assert process.poll() is None and time.monotonic() < end
        time.sleep(0.1)
    assert len(survivors(mark)) >= 4  # itself, torchrun, two ranks
    return process


@pytest.mark.slow
@pytest.mark.parametrize("name", ["interrupted", "killed"])
def test_a_kernel_that_is_stopped_leaves_no_process(here, mark, name):
    process = start_hanging(here, mark)
    process.send_signal(signal.SIGINT if name == "interrupted" else signal.SIGKILL)
    out, err = process.communicate(timeout=30)
    if name == "interrupted":
        assert "all ranks | start hang\nInterrupted: all ranks were stopped." in out
        assert err.rstrip().endswith("KeyboardInterrupt")
        assert survivors(mark) == []
    end = time.monotonic() + 30
    while survivors(mark) and time.monotonic() < end:
        time.sleep(0.2)
    assert survivors(mark) == []


@pytest.mark.everywhere
def test_launches_end_cleanly_again_and_again(here, capfd):
    for _ in range(4):  # gloo may abort at exit where the group is not taken down with care
        assert go("plain", quiet=True).ok
        assert capfd.readouterr().out == ""


# Without a launch


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"ranks": 0}, "whole number from 1"),
        ({"ranks": "two"}, "whole number from 1"),
        ({"ranks": 3, "nodes": 2}, "do not spread evenly"),
        ({"nodes": 0}, "do not spread evenly"),
        ({"seconds": 0}, "time limit"),
        ({"restarts": -1}, "0 or more"),
        ({"kill": launch.Kill(2, "x")}, "no rank 2"),
    ],
)
def test_what_makes_no_sense_is_refused(here, options, says, monkeypatch):
    monkeypatch.setattr(subprocess, "Popen", None)
    with pytest.raises(ValueError, match=says):
        go("plain", **options)


def test_a_missing_script_is_refused(here):
    with pytest.raises(ValueError, match=r"no file 'work/none.py'.* run the cell that writes it"):
        launch.run("work/none.py")


@pytest.mark.parametrize(
    ("missing", "says"),
    [
        ("is_available", "without torch.distributed"),
        ("is_gloo_available", "without gloo"),
        ("psutil", "pip install psutil"),
    ],
)
def test_what_a_launch_needs_is_named(here, monkeypatch, missing, says):
    with monkeypatch.context() as without, pytest.raises(RuntimeError, match=says):
        if missing == "psutil":
            without.setitem(sys.modules, "psutil", None)
        else:
            without.setattr(torch.distributed, missing, lambda: False)
            without.setattr(torch.cuda, "device_count", lambda: 1)
        go("plain")


@pytest.mark.slow
def test_torchruns_own_failure_is_said(here, capfd):
    done = go("plain", environment={"PET_NNODES": "many"})
    assert not done.ok and done.error is None
    printed = capfd.readouterr()
    assert "torchrun itself stopped: " in printed.out and printed.err


def test_without_libuv_torchrun_is_told(monkeypatch, tmp_path):
    def refuse(*args, use_libuv, **kwargs):
        if use_libuv:
            raise RuntimeError("use_libuv was requested but PyTorch was built without libuv support")

    assert prepare.environment(2, str(tmp_path), {}).get("USE_LIBUV") in (None, "0")
    monkeypatch.setattr(torch.distributed, "TCPStore", refuse)
    assert prepare.environment(2, str(tmp_path), {})["USE_LIBUV"] == "0"


def test_the_ranks_tracebacks_are_plain_where_a_kernel_asks_for_colours(monkeypatch, tmp_path):
    monkeypatch.setenv("FORCE_COLOR", "1")
    given = prepare.environment(2, str(tmp_path), {})
    said = subprocess.run([sys.executable, "-c", "1 / 0"], env=given, capture_output=True, text=True)
    assert "\nZeroDivisionError: division by zero" in said.stderr


def test_the_ranks_find_the_course_and_what_the_learner_adds(monkeypatch, tmp_path):
    monkeypatch.setenv("PYTHONPATH", "one")
    assert prepare.environment(2, str(tmp_path), {})["PYTHONPATH"].split(os.pathsep) == [
        "one",
        str(ROOT),
    ]
    given = prepare.environment(2, str(tmp_path), {"PYTHONPATH": "two", "OMP_NUM_THREADS": "5"})
    assert given["PYTHONPATH"].split(os.pathsep) == ["two", str(ROOT)]
    assert given["OMP_NUM_THREADS"] == "5"


# What was said, without processes


def test_lines_are_grouped():
    said = [["a", "1", "b", "b"], ["a", "2", "b"], ["0", "a", "b", "3"]]
    shown = "rank 2 | 0, all ranks | a, rank 0 | 1, rank 1 | 2, all ranks | b, rank 0 | b, rank 2 | 3"
    assert group(said) == shown.split(", ")
    assert group([["a"], []]) == ["rank 0 | a"] and group([[], []]) == []


@pytest.fixture
def files(tmp_path):
    """Return a function that writes the ranks' stderr files as torchrun does, and reads them."""

    def write(*errors, said=""):
        script = tmp_path / "work" / "train.py"
        for rank, error in enumerate(errors):
            folder = tmp_path / "log" / "none_x" / "attempt_0" / str(rank)
            folder.mkdir(parents=True)
            (folder / "stderr.log").write_text(error.replace("SCRIPT", str(script)), encoding="utf-8")
            (folder / "stdout.log").write_text(said, encoding="utf-8")
        output = Output([tmp_path / "log"], len(errors), script)
        output.read(to_end=True)
        return output

    return write


LOST = """[rank0]: Traceback (most recent call last):
[rank0]:   File "SCRIPT", line 3, in <module>
[rank0]:     dist.barrier()
[rank0]: RuntimeError: [/x/gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:1
[rank0]:[W1121 13:08:41 ProcessGroup.cpp:1] Warning: something
"""
TIMED_OUT = """[rank1]: Traceback (most recent call last):
[rank1]:   File "SCRIPT", line 3, in <module>
[rank1]:     dist.barrier()
[rank1]: RuntimeError: [/x/gloo/transport/unbound.cc:81] Timed out waiting 3000ms for recv operation
"""
OWN = """[rank1]: Traceback (most recent call last):
[rank1]:   File "SCRIPT", line 7, in <module>
[rank1]:     step()
[rank1]:   File "/usr/lib/python3/site-packages/torch/x.py", line 9, in step
[rank1]:     inner()
[rank1]: KeyError: 'a'

[rank1]: During handling of the above exception, another exception occurred:

[rank1]: Traceback (most recent call last):
[rank1]:   File "SCRIPT", line 8, in <module>
[rank1]:     raise torch.OutOfMemoryError("one\\ntwo")
[rank1]: torch.OutOfMemoryError: one
[rank1]: two
[rank1]: Exception raised from here (most recent call first):
[rank1]: frame #0: somewhere
"""
SYNTAX = """  File "SCRIPT", line 2
    if True
           ^
SyntaxError: expected ':'
"""


@pytest.mark.parametrize(
    ("errors", "codes", "sentence"),
    [
        ((LOST, OWN), {}, "rank 1 stopped with OutOfMemoryError: one\ntwo"),
        ((LOST, ""), {1: -9}, "rank 1 was killed by the signal SIGKILL."),
        ((LOST, ""), {1: 3}, "rank 1 stopped with exit code 3"),
        (
            (LOST, ""),
            {0: 1},
            "rank 0 stopped with RuntimeError: Connection closed by peer [127.0.0.1]:1",
        ),
        (
            (LOST, TIMED_OUT),
            {0: 1, 1: 1},
            "rank 1 stopped with RuntimeError: Timed out waiting 3000ms for recv operation",
        ),
        ((TIMED_OUT, OWN), {0: 1, 1: 1}, "rank 1 stopped with OutOfMemoryError: one\ntwo"),
        ((TIMED_OUT, ""), {0: 1, 1: 3}, "rank 1 stopped with exit code 3"),
        ((SYNTAX, SYNTAX), {}, "rank 0 and rank 1 stopped with SyntaxError: expected ':'"),
        (("", ""), {}, "None"),
    ],
)
def test_the_error_that_came_first_is_found(files, errors, codes, sentence):
    error = files(*errors).error(0, codes)
    assert str(error) == sentence
    if errors[1] == OWN:
        assert error.trace == ('train.py, line 8: raise torch.OutOfMemoryError("one\\ntwo")',)


def test_what_an_error_made_a_rank_say_is_left_out_only_where_one_failed(files):
    output = files("a warning\n" + LOST, OWN, said="[Gloo] Rank 0 is connected\nhello\n")
    assert output.lines(0, 0, failed=True) == ["hello", "a warning"]
    assert len(output.lines(0, 0, failed=False)) == 7
    assert output.lines(1, 0, failed=True) == ["hello"]


def test_torchruns_report_is_read(tmp_path):
    log = tmp_path / "node0.log"
    log.write_text(
        "E1 failed (exitcode: -9) local_rank: 1 (pid: 5) of binary: python\n"
        "E2 failed (exitcode: 1) local_rank: 0 (pid: 6) of binary: python\n"
        "  rank      : 1 (local_rank: 1)\n  exitcode  : -15 (pid: 7)\n"
        "  rank      : 0 (local_rank: 0)\n  exitcode  : 1 (pid: 6)\n",
        encoding="utf-8",
    )
    assert exits([log], 2) == {0: {1: -9}, 1: {0: 1}}


def test_only_the_marked_processes_are_a_launchs(mark):
    if sys.platform == "win32":
        skip("a virtual environment's python is two processes on Windows", until="2027-11-30")
    sleep = [sys.executable, "-c", "import time; time.sleep(60)"]
    with (
        subprocess.Popen(sleep, env={**os.environ, processes.MARK: "one", "RANK": "1"}) as one,
        subprocess.Popen(sleep, env={**os.environ, processes.MARK: "two"}) as two,
    ):
        try:
            end = time.monotonic() + 20
            while not processes.ranks("one") and time.monotonic() < end:
                time.sleep(0.05)
            assert {rank: [p.pid for p in found] for rank, found in processes.ranks("one").items()} == {
                1: [one.pid]
            }
            processes.end_all([], "one")
            assert one.wait(5) is not None
            assert two.poll() is None
        finally:
            one.kill()
            two.kill()
