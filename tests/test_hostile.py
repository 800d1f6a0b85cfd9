"""No answer ends a kernel, no cell hangs, and the next right answer is right.

A thousand answers go to processes that stand for a kernel (`hostile.py`); some to a real one.

What an attack of November 2026 tried, and the test that tries it now; `python tests/attack.py` tries all and counts:

| tried | held then | holds now |
|---|---|---|
| `update` killed | none lost; 6 empty files | update_stopped_at_every_second_line |
| `update`, three at once | none lost, then; now and again one was: they wait now | three_updates_at_once |
| `reset` killed | no work lost; 8 empty files | reset_stopped_at_each_line, reset_killed_a_hundred_times |
| `hand-in`, `bundle` killed | not tried | killed_a_hundred_times, killed_writers |
| a full disk | notebook kept | full_disk, takes_no_file |
| wrong arguments and files | 5 tracebacks of 75 | wrong_arguments, hostile_records |
| the progress file, written by several or killed | 1,020 of 1,020 | writers_of_progress |
| the progress file, bad lines of it | 15 of 16 | hostile_progress_file |
| class-report, hostile rooms | 48 of 54 | room_of_hostile_files, names_links_and_pipes, test_workshop |
| hostile answers | 572 of 672 | a_thousand_answers, real_kernel_outlives |
| answers that replace the check's functions | 0 of 10 each | what_an_answer_replaces |
| a check within its check | 6 of 9 | within_its_own_check |
| a checkpoint, one bit wrong or cut | lesson 05: 426 of 500 wrong | test_checkpoints, test_templates, test_ledger, test_kill |

Tried since, each got through once: `later_attacks` (the last of `hostile.BODIES`), a timer that rings while the check clears up
or after it, threads that exit for ever, an exit taken from its module before, an error whose class never answers, a limit of the
processor's time, a callback of the garbage collector, a stack too small for a thread, a list of paths emptied, a bit that marks
a part of a checkpoint as a folder.
"""

from __future__ import annotations

import copy
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import hostile
import pytest
import torch
from harness import ROOT, TABLE, code_cells, execute, kernel_env, notebook, results
from support import skip

from course_utils.exercises import lesson
from course_utils.exercises.guard import refusals
from course_utils.exercises.judge import Judge

PATIENCE = 90.0
"""Seconds without a line after which a process counts as hung: ten times what any case should take."""


@pytest.fixture
def posix():
    if sys.platform == "win32":
        skip("Windows has no alarm: `guard` says what it does", until="2027-11-30")


@dataclass
class Tally:
    """What became of the answers."""

    found: list[tuple[str, dict]] = field(default_factory=list)
    dead: list[str] = field(default_factory=list)
    hung: list[str] = field(default_factory=list)


def feed(
    tally: Tally, folder: Path, share: int, of: int, most: int | None = None, first: int | None = 0
) -> None:
    """Judge a share of the answers; after a death or a hang go on behind it, in a new process."""
    case = share
    while first is not None:
        name = ""
        program = ROOT / "tests" / "hostile.py"
        command = [sys.executable, program, share, of, first, most or 10**9]
        with (folder / f"errors{share}.txt").open("ab") as errors:
            process = subprocess.Popen(
                list(map(str, command)),
                cwd=folder,
                env=kernel_env(folder, PYTHONPATH=str(ROOT)),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        lines: queue.Queue[str] = queue.Queue()
        threading.Thread(target=_read, args=(process, lines), daemon=True).start()
        first = None
        while True:
            try:
                # It imports much, once.
                line = lines.get(timeout=PATIENCE if name else 5 * PATIENCE)
            except queue.Empty:
                tally.hung.append(name)
                process.kill()
                first = case + of
                break
            if not line:
                if process.wait() != 0:
                    tally.dead.append(f"{name}: {process.returncode}")
                    first = case + of
                break
            said = json.loads(line)
            if "case" in said:
                case, name = said["case"], said["name"]
            else:
                tally.found.append((name, said))


def _read(process: subprocess.Popen[str], lines: queue.Queue[str]) -> None:
    for line in process.stdout:
        lines.put(line)
    lines.put("")


def faults(tally: Tally) -> list[str]:
    """Say what a learner would have noticed."""
    said = [f"dead: {name}" for name in tally.dead] + [f"hung: {name}" for name in tally.hung]
    for name, one in tally.found:
        if one["late"]:
            said.append(f"{name}: took {one['seconds']} s")
        if one["changed"]:
            said.append(f"{name}: left changed: {one['changed']}")
        if one.get("then", "right") != "right":
            said.append(f"{name}: the right answer after it is {one['then']}")
        if one.get("then wrong", True) is not True:
            said.append(f"{name}: the wrong answer after it is {one['then wrong']}")
        if one["text"].startswith("too long"):
            said.append(f"{name}: its text is {one['text']}")
        if "wrong: " in name and (one["outcome"], f"wrong: {one['diagnosis']}") != (
            "not_yet",
            name.split(" ", 1)[1],
        ):
            said.append(f"{name}: {one['outcome']} {one['diagnosis']}")
        if "returns: " in name and one["outcome"] == "right":
            said.append(f"{name}: called right")
    return said


@pytest.mark.usefixtures("posix")
@pytest.mark.everywhere
@pytest.mark.serial
def test_a_thousand_answers_end_no_kernel_and_hang_no_cell(tmp_path, record_property, attacked):
    begun, tally = time.monotonic(), Tally()
    folders = [tmp_path / "a", tmp_path / "b"]
    for folder in folders:
        folder.mkdir()
    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda share: feed(tally, folders[share], share, 2), range(2)))
    outcomes = Counter(
        "too slow" if one["diagnosis"] == "too-slow" else one["outcome"] for _, one in tally.found
    )
    line = (
        f"PyTorch {torch.__version__}: {len(tally.found)} answers, {len(tally.dead)} dead kernels, "
        f"{len(tally.hung)} hung cells; {dict(outcomes)}; {(time.monotonic() - begun) / 60:.1f} minutes"
    )
    record_property(f"{TABLE}hostile and wrong answers", line)
    assert not faults(tally), "\n".join([line, *faults(tally)])
    assert len(tally.found) >= 1000
    hostile_ones = sum("wrong: " not in name for name, _ in tally.found)
    attacked("hostile answers", hostile_ones)
    attacked("wrong answers of learners, between them", len(tally.found) - hostile_ones)


@pytest.mark.usefixtures("posix")
@pytest.mark.slow
def test_some_hostile_answers_end_no_kernel_and_hang_no_cell(tmp_path):
    tally = Tally()
    feed(tally, tmp_path, 3, 11, most=130)
    assert not faults(tally), "\n".join(faults(tally))
    assert len(tally.found) == 12


@pytest.mark.usefixtures("posix")
@pytest.mark.slow
def test_later_attacks_end_no_kernel_and_leave_nothing_changed(tmp_path, attacked):
    tally, end = Tally(), len(hostile.BODIES)
    feed(tally, tmp_path, 0, 1, most=end, first=end - hostile.LATER)
    assert not faults(tally), "\n".join(faults(tally))
    assert len(tally.found) == hostile.LATER
    attacked("own: later answers, most of which replace what a check runs through", hostile.LATER)


@pytest.mark.usefixtures("posix")
@pytest.mark.parametrize(
    ("body", "name"),
    [
        ("core.Judge.no = lambda *a, **k: None\nreturn 0.1", "Judge.no"),
        ("core.Exercise.result = None\nreturn RIGHT(*ARGS)", "Exercise.result"),
        ("math.isclose = lambda *a, **k: True\nreturn 0.1", "math.isclose"),
        ("torch.matmul = lambda *a: 0\nreturn RIGHT(*ARGS)", "torch.matmul"),
        ("builtins.len = lambda *a: 0\nreturn RIGHT(*ARGS)", "builtins.len"),
    ],
)
def test_what_an_answer_replaces_is_told_and_put_back_and_makes_nothing_right(body, name):
    exercise = lesson("01").speedup
    result = exercise.result(hostile.make_function(exercise, body))
    assert result.outcome != "right"
    assert f"Your answer changed: {name}; put back" in result.bundle().text
    assert exercise.result(exercise.reference).outcome == "right"
    assert exercise.result(lambda cpu_seconds, device_seconds: 0.1).outcome == "not_yet"


def test_names_that_warn_when_they_are_looked_at_are_not_looked_at(recwarn):
    """PyTorch has such: to a learner their warning would be what "Your code printed"."""
    exercise = lesson("01").speedup
    body = "torch.distributed.further = 0\nreturn RIGHT(*ARGS)"
    assert exercise.result(hostile.make_function(exercise, body)).outcome == "right"
    assert not [str(one.message) for one in recwarn if "course_utils" in one.filename]


def test_another_default_dtype_is_put_back_and_is_no_replaced_function():
    exercise = lesson("01").speedup
    body = "torch.set_default_dtype(torch.float64)\nreturn 0.1"
    result = exercise.result(hostile.make_function(exercise, body))
    assert "Your answer changed" not in result.bundle().text
    assert torch.get_default_dtype() is torch.float32


def test_a_timer_that_rings_while_a_check_clears_up_does_nothing(monkeypatch, attacked):
    """Once it could ring when exits were allowed again and its thread not yet ended."""
    exercise, rang, refuse = lesson("01").speedup, [], refusals.refuse

    def slowly(names):
        lift = refuse(names)
        return lambda: (lift(), time.sleep(0.5))

    monkeypatch.setattr(os, "_exit", rang.append)
    monkeypatch.setattr(refusals, "refuse", slowly)
    body = "threading.Timer(0.2, lambda: os._exit(7)).start()\nCALLS.append(1)\nreturn RIGHT(*ARGS)"
    answer = hostile.make_function(exercise, body)
    answer.__globals__["CALLS"] = calls = []
    assert exercise.result(answer).outcome == "right"
    os._exit(0)
    assert rang == [0]
    attacked("own: timers that ring while a check clears up", len(calls))


def test_a_check_within_its_own_check_is_told_where_it_belongs():
    exercise = lesson("01").speedup
    result = exercise.result(hostile.make_function(exercise, "return CHECK(RIGHT)"))
    assert result.outcome == "raised"
    assert "call check() below the function, not in it" in result.bundle().text


def test_a_judge_that_an_answer_turned_into_a_kinder_one_has_no_say():
    class Kind(Judge):
        def no(self, diagnosis, *, seen=None, expected=None):
            pass

    def speedup(cpu_seconds, device_seconds):
        frame = sys._getframe()
        while frame := frame.f_back:
            for value in [value for value in frame.f_locals.values() if type(value) is Judge]:
                value.__class__ = Kind
        return 0

    result = lesson("01").speedup.result(speedup)
    assert (result.outcome, result.diagnosis) == ("not_yet", "replaced")
    assert "Kind" in result.bundle().text


KERNEL = """
import os, sys, threading, time
import torch
from course_utils.exercises import lesson
speed, frugal, mend = lesson("01").speedup, lesson("06").frugal_step, lesson("07").mend_e
speed.limit = 1.0
"""

CELLS = {
    "def speedup(cpu_seconds, device_seconds):\n    exit()\nspeed.check(speedup)": "raised",
    "def speedup(cpu_seconds, device_seconds):\n    quit()\nspeed.check(speedup)": "raised",
    "def speedup(cpu_seconds, device_seconds):\n    input('?')\nspeed.check(speedup)": "raised",
    "def speedup(cpu_seconds, device_seconds):\n    os._exit(1)\nspeed.check(speedup)": "raised",
    "def speedup(cpu_seconds, device_seconds):\n    os.fork()\nspeed.check(speedup)": "raised",
    "def speedup(cpu_seconds, device_seconds):\n    return 10**10**9\nspeed.check(speedup)": "not_yet",
    "def speedup(cpu_seconds, device_seconds):\n    threading.Lock().acquire(); time.sleep(1e6)\n"
    "speed.check(speedup)": "not_yet",
    "def speedup(cpu_seconds, device_seconds):\n    while True:\n        try: time.sleep(0.1)\n"
    "        except BaseException: pass\nspeed.check(speedup)": "not_yet",
    "def speedup(cpu_seconds, device_seconds):\n    x = []\n    while True: x.append(bytearray(10**8))\n"
    "speed.limit = 20; speed.check(speedup)": "raised",
    "def speedup(cpu_seconds, device_seconds):\n    sys.stdout = None; torch.set_grad_enabled(False)\n"
    "    return speed.reference(cpu_seconds, device_seconds)\nspeed.check(speedup)": "right",
    "frugal.check(frugal.reference)": "right",
    "frugal.check(lambda model, x, y, loss_fn, optimizer: None)": "not_yet",
    "frugal.check(frugal.reference) ": "right",
    "mend.check(mend.reference)": "right",
    "mend.check(lambda model, batches, optimizer: 0)": "not_yet",
    "mend.check(mend.reference) ": "right",
    "speed.check(speed.reference)": "right",
}


@pytest.mark.usefixtures("posix")
@pytest.mark.everywhere
def test_a_real_kernel_outlives_hostile_answers(tmp_path):
    nb = notebook(KERNEL, *CELLS, "print('still', torch.is_grad_enabled())")
    execute(nb, tmp_path, PYTHONPATH=str(ROOT))
    _, *checks, last = code_cells(nb)
    found = [list(results(_only(cell)).values()) for cell in checks]
    assert found == [[outcome] for outcome in CELLS.values()]
    assert last.outputs[0].text == "still True\n"


def _only(cell):
    nb = notebook()
    nb.cells = [cell]
    return nb


def judged_in_a_thread(exercise, answer):
    found = []
    thread = threading.Thread(target=lambda: found.append(exercise.result(answer)))
    thread.start()
    thread.join(30)
    assert found, "it hangs"
    return found[0]


@pytest.mark.slow
def test_where_there_is_no_alarm_the_check_goes_on_without_the_answer():
    """As on Windows, and in a kernel's subshell: what cannot be stopped is left behind."""
    exercise = copy.copy(lesson("01").speedup)
    exercise.limit = 0.5
    threads, begun = set(threading.enumerate()), time.monotonic()
    forever = threading.Event()

    def waits(cpu_seconds, device_seconds):
        forever.wait(20)

    def leaves(cpu_seconds, device_seconds):
        os.chdir("/")
        torch.set_default_dtype(torch.float64)
        raise SystemExit

    def spins(cpu_seconds, device_seconds):
        while True:
            pass

    folder = Path.cwd()
    assert judged_in_a_thread(exercise, spins).diagnosis == "too-slow"
    assert judged_in_a_thread(exercise, waits).diagnosis == "too-slow"
    assert judged_in_a_thread(exercise, leaves).diagnosis == "SystemExit"
    assert judged_in_a_thread(exercise, exercise.reference).outcome == "right"
    assert (Path.cwd(), torch.get_default_dtype()) == (folder, torch.float32)
    assert time.monotonic() - begun < 20
    forever.set()
    time.sleep(0.2)
    assert set(threading.enumerate()) <= threads  # others' may have ended meanwhile


@pytest.mark.usefixtures("posix")
def test_an_alarm_of_someone_elses_still_rings():
    exercise = lesson("01").speedup
    before = signal.signal(signal.SIGALRM, signal.SIG_IGN)
    try:
        signal.setitimer(signal.ITIMER_REAL, 1000)
        assert exercise.result(exercise.reference).outcome == "right"
        assert 900 < signal.getitimer(signal.ITIMER_REAL)[0] <= 1000
        assert signal.getsignal(signal.SIGALRM) is signal.SIG_IGN
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_what_an_answer_says_of_memory_it_did_not_get_is_kind():
    exercise = lesson("01").speedup
    for hungry in (
        lambda cpu_seconds, device_seconds: bytearray(10**13),
        lambda cpu_seconds, device_seconds: torch.ones(10**13),
    ):
        result = exercise.result(hungry)
        assert result.outcome == "raised"
        assert "more memory than a check may take" in result.text


@pytest.mark.slow
def test_tensors_without_values_can_be_made_in_one_thread_after_another(simulated):
    """Up to PyTorch 2.11 the second thread that entered a fake mode ended the process."""
    script = (
        "import threading, torch\n"
        "from course_lessons.shared import memory\n"
        "def work():\n"
        "    with memory.spare_device('1 GB') as device, memory.Hollow():\n"
        "        sums.append((torch.ones(3, device=device) + 1).sum().item())\n"
        "sums = []\n"
        "for _ in range(4):\n"
        "    thread = threading.Thread(target=work)\n"
        "    thread.start(); thread.join()\n"
        "print(sums)"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "[0, 0, 0, 0]\n"), done.stderr
