"""Whatever an answer does, its check ends, the next one is right, and global state is as it was.

``python test_guard.py 01.speedup …`` judges every answer of `BODIES` to these exercises, and prints a line
of JSON for each: a test reads them from outside, and sees what died or hangs.
"""

from __future__ import annotations

import copy
import inspect
import json
import os
import queue
import random
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from harness import ROOT, code_cells, execute, kernel_env, notebook, results
from support import skip

from course_utils.exercises import guard, lesson

LIMIT = 0.5
EXERCISES = ("01.speedup", "03.train_epoch", "02.tower", "09.as_numpy")
"""Numbers, a training loop, a module, a simulated device."""

# The body of a function with the stub's arguments; RIGHT(*ARGS) is what the reference would return.
NEVER_ENDS = {
    "spins": "while True: pass",
    "sleeps": "time.sleep(1e6)",
    "locks": "lock = threading.Lock(); lock.acquire(); lock.acquire()",
    "queue": "queue.Queue().get()",
    "joins": "t = threading.Thread(target=time.sleep, args=(9,), daemon=True); t.start(); t.join()",
    "pipe": "os.read(os.pipe()[0], 1)",
    "process": "subprocess.run([sys.executable, '-c', 'import time; time.sleep(5)'])",
    "power": "10**10**9",
    "factorial": "math.factorial(10**8)",
    "regex": "re.match('(a+)+$', 'a' * 40 + 'b')",
    "prints": "while True: print('x' * 1000)",
    "generator": "return list(x for x in itertools.count() if x < 0)",
    "swallows": "while True:\n    try: time.sleep(0.01)\n    except BaseException: pass",
    "swallows bare": "while True:\n    try:\n        for i in range(10**9): str(i)\n    except: continue",
    "swallows finally": "while True:\n    try: time.sleep(0.01)\n    finally: continue",
    "swallows deep": "def f():\n    try: time.sleep(1)\n    except BaseException: f()\nwhile True: f()",
    "suppresses": "while True:\n    with contextlib.suppress(BaseException): time.sleep(0.01)",
    "error without text": "class E(Exception):\n    def __str__(self):\n        while True: pass\nraise E",
    "tensors": "while True: torch.ones(10**5).to('sim' if simgpu.enabled() else 'cpu')",
}
RAISES = {
    "sys.exit": "sys.exit(1)",
    "KeyboardInterrupt": "raise KeyboardInterrupt",
    "GeneratorExit": "raise GeneratorExit",
    "list": "[0] * 10**11",
    "bytes": "bytearray(10**12)",
    "tensor": "torch.ones(10**11)",
    "recursion": "def f(): return f()\nf()",
    "recursive repr": "class A:\n    def __repr__(self): return repr(self)\nrepr(A())",
    "autograd hook": "x = torch.ones(2, requires_grad=True); x.register_hook(lambda g: 1 / 0)\n"
    "(x * 2).sum().backward()",
    "module hook": "m = torch.nn.Linear(2, 2); m.register_forward_hook(lambda *a: 1 / 0); m(torch.ones(2))",
    "worker": "class D(torch.utils.data.Dataset):\n    def __len__(self): return 4\n"
    "    def __getitem__(self, i): raise KeyError(i)\n"
    "list(torch.utils.data.DataLoader(D(), num_workers=1))",
}
RIGHT = {
    code: f"{code}\nreturn RIGHT(*ARGS)"
    for code in (
        "def f():\n    while True: pass\nif threading.active_count() < 3: threading.Thread(target=f).start()",
        "threading.Thread(target=time.sleep, args=(0.2,), daemon=True).start()",
        "threading.Timer(0.05, lambda: os.chdir('/')).start()",
        "torch.set_grad_enabled(False)",
        "torch.set_default_dtype(torch.float64); torch.set_default_dtype(torch.float32)",
        "torch.set_default_device('meta')",
        "torch.device('meta').__enter__()",
        "torch.set_num_threads(2)",
        "torch.use_deterministic_algorithms(True)",
        "torch.set_float32_matmul_precision('medium')",
        "torch.inference_mode().__enter__()",
        "torch.autograd.set_detect_anomaly(True)",
        "torch.autocast('cpu', dtype=torch.float16).__enter__()",
        "torch.manual_seed(0); random.seed(0); np.random.seed(0)",
        "sys.stdout = None",
        "sys.stdout.close()",
        "os.chdir('/')",
        "os.environ.clear()",
        "gc.disable()",
        "warnings.simplefilter('error')",
        "signal.signal(signal.SIGINT, signal.SIG_IGN)",
        "sys.setrecursionlimit(5000)",
    )
}
BODIES = {**NEVER_ENDS, **RAISES, **RIGHT}
IMPORTS = "contextlib gc itertools math os queue random re signal simgpu subprocess sys threading time torch"
IMPORTS += " warnings"


def make(exercise, body):
    """Return a function with the stub's parameters and this body."""
    names = ", ".join(inspect.signature(exercise.reference).parameters)
    space = {
        "RIGHT": exercise.reference,
        "np": np,
        **{name: __import__(name) for name in IMPORTS.split()},
    }
    text = f"def answer({names}):\n    ARGS = ({names},)\n" + textwrap.indent(body, "    ")
    exec(compile(text, "<answer>", "exec"), space)
    return space["answer"]


def state():
    """Return the global state that a check must not change."""
    return {
        "folder": os.getcwd(),
        "environment": dict(os.environ),
        "recursion": sys.getrecursionlimit(),
        "interrupt": signal.getsignal(signal.SIGINT),
        "alarm": signal.getsignal(signal.SIGALRM),
        "gc": torch.is_grad_enabled() and __import__("gc").isenabled(),
        "random": random.getstate(),
        "NumPy's": np.random.get_state()[1].tolist(),  # noqa: NPY002
        "torch's": torch.get_rng_state().tolist(),
        "inference": torch.is_inference_mode_enabled(),
        "dtype": torch.get_default_dtype(),
        "device": torch.get_default_device(),
        "modes": torch._C._len_torch_function_stack(),
        "autocast": (torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")),
        "threads": torch.get_num_threads(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "precision": torch.get_float32_matmul_precision(),
        "anomaly": torch.is_anomaly_enabled(),
        "stdout": sys.stdout,
        "python threads": {t for t in threading.enumerate() if not t.daemon},
    }


def judge_all(ids):
    """Check every body as an answer to each exercise, and print the results."""
    torch.use_deterministic_algorithms(False)  # the first call imports the compiler, which takes seconds
    for ident in ids:
        exercise = copy.copy(getattr(lesson(ident[:2]), ident[3:]))
        assert exercise.result(exercise.reference).outcome == "right"
        for name, body in BODIES.items():
            exercise.limit = LIMIT if name in NEVER_ENDS else 20.0
            before, start = state(), time.monotonic()
            outcome = exercise.result(make(exercise, body))
            seconds, after = time.monotonic() - start, state()
            exercise.limit = 20.0
            report = {
                "case": f"{ident} {name}",
                "outcome": outcome.diagnosis if name in NEVER_ENDS else outcome.outcome,
                "seconds": seconds,
                "changed": [key for key in before if before[key] != after[key]],
                "then": exercise.result(exercise.reference).outcome,
            }
            print(json.dumps(report), flush=True)


EXPECTED = {
    **dict.fromkeys(NEVER_ENDS, "too-slow"),
    **dict.fromkeys(RAISES, "raised"),
    **dict.fromkeys(RIGHT, "right"),
}


def faults(folder, *ids):
    """Run `judge_all` in a subprocess; return the number of answers and what a learner would have seen."""
    process = subprocess.Popen(
        [sys.executable, __file__, *ids],
        cwd=folder,
        env=kernel_env(folder, PYTHONPATH=os.pathsep.join([str(ROOT), *map(str, sys.path)])),
        stdout=subprocess.PIPE,
        text=True,
    )
    lines = queue.Queue()
    threading.Thread(target=lambda: [*map(lines.put, process.stdout), lines.put("")]).start()
    reports = []
    try:
        while line := lines.get(timeout=240):  # the first one waits for the imports too
            reports.append(json.loads(line))
    except queue.Empty:
        process.kill()
        return len(reports), [f"hangs after {reports[-1:]}"]
    wrong = [f"the process ended with {process.returncode}"] * (process.wait() != 0)
    for report in reports:
        expected = EXPECTED[report["case"].split(" ", 1)[1]]
        good = report["outcome"] == expected and report["then"] == "right" and not report["changed"]
        wrong += [] if good and report["seconds"] < 8 else [str(report)]
    return len(reports), wrong


@pytest.fixture
def alarm():
    if not hasattr(signal, "setitimer"):
        skip("Windows has no alarm", until="2027-11-30")


@pytest.mark.usefixtures("alarm")
@pytest.mark.slow
def test_whatever_an_answer_does_its_check_ends_and_leaves_nothing_changed(tmp_path):
    count, wrong = faults(tmp_path, EXERCISES[0])
    assert wrong == []
    assert count == len(BODIES)


@pytest.mark.usefixtures("alarm")
@pytest.mark.everywhere
def test_two_hundred_answers_hang_no_cell(tmp_path):
    count, wrong = faults(tmp_path, *EXERCISES)
    assert wrong == []
    assert count == len(EXERCISES) * len(BODIES) > 200


CELLS = {
    "def speedup(cpu_seconds, device_seconds):\n    return 10**10**9\nspeed.check(speedup)": "not_yet",
    "def speedup(cpu_seconds, device_seconds):\n    threading.Lock().acquire(); time.sleep(1e6)\n"
    "speed.check(speedup)": "not_yet",
    "def speedup(cpu_seconds, device_seconds):\n    while True:\n        try: time.sleep(0.1)\n"
    "        except BaseException: pass\nspeed.check(speedup)": "not_yet",
    "def speedup(cpu_seconds, device_seconds):\n    sys.exit()\nspeed.check(speedup)": "raised",
    "def speedup(cpu_seconds, device_seconds):\n    x = []\n    while True: x.append(bytearray(10**8))\n"
    "speed.limit = 20; speed.check(speedup)": "raised",
    "def speedup(cpu_seconds, device_seconds):\n    sys.stdout = None; torch.set_grad_enabled(False)\n"
    "    return speed.reference(cpu_seconds, device_seconds)\nspeed.check(speedup)": "right",
    "speed.check(speed.reference)": "right",
}


@pytest.mark.usefixtures("alarm")
@pytest.mark.slow
def test_a_real_kernel_outlives_such_answers(tmp_path):
    setup = (
        "import os, sys, threading, time\nimport torch\nfrom course_utils.exercises import lesson\n"
        'speed = lesson("01").speedup\nspeed.limit = 1.0'
    )
    nb = notebook(setup, *CELLS, "print('still', torch.is_grad_enabled())")
    execute(nb, tmp_path, PYTHONPATH=str(ROOT))
    _, *checks, last = code_cells(nb)
    for cell, outcome in zip(checks, CELLS.values(), strict=True):
        one = notebook()
        one.cells = [cell]
        assert list(results(one).values()) == [outcome]
    assert last.outputs[0].text == "still True\n"


def test_a_check_within_its_own_check_is_told_where_it_belongs():
    exercise = lesson("01").speedup

    def speedup(cpu_seconds, device_seconds):
        return exercise.result(exercise.reference)

    result = exercise.result(speedup)
    assert result.outcome == "raised"
    assert "call check() below the function, not in it" in result.bundle().text


@pytest.mark.slow
def test_where_there_is_no_alarm_the_check_goes_on_without_the_answer():
    """As on Windows, and in a kernel's subshell: what cannot be stopped is left behind."""
    exercise = copy.copy(lesson("01").speedup)
    exercise.limit = 0.5
    exercise.result(exercise.reference)
    forever, folder, start = threading.Event(), Path.cwd(), time.monotonic()

    def in_a_thread(body):
        outcomes = []
        answer = make(exercise, body)
        answer.__globals__["forever"] = forever
        thread = threading.Thread(target=lambda: outcomes.append(exercise.result(answer)))
        thread.start()
        thread.join(30)
        return outcomes[0].diagnosis or outcomes[0].outcome

    assert in_a_thread("while True: pass") == "too-slow"
    assert in_a_thread("forever.wait(20)") == "too-slow"
    assert in_a_thread("os.chdir('/'); raise SystemExit") == "SystemExit"
    assert in_a_thread("return RIGHT(*ARGS)") == "right"
    assert Path.cwd() == folder
    assert time.monotonic() - start < 20
    forever.set()


@pytest.mark.usefixtures("alarm")
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


@pytest.mark.parametrize("body", ["bytearray(10**13)", "torch.ones(10**13)"])
def test_what_an_answer_says_of_memory_it_did_not_get_is_kind(body):
    if sys.platform != "linux":
        skip("memory is limited on Linux only", until="2027-11-30")
    exercise = lesson("01").speedup
    result = exercise.result(make(exercise, body))
    assert result.outcome == "raised"
    assert "more memory than a check may take" in result.text


if __name__ == "__main__":
    judge_all(sys.argv[1:])


def test_a_second_step_under_autocast_computes_with_the_weights_of_the_first():
    linear, x = torch.nn.Linear(4, 4), torch.ones(1, 4)

    def answer():
        results = []
        for _ in range(2):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                results.append(linear(x).detach())
            linear.weight.data.mul_(2.0)
        return results

    before, after = guard.run(answer, 10.0)
    assert not torch.equal(before, after)
    assert not torch.is_autocast_enabled("cpu")
