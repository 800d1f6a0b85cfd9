"""Run PyTorch's own device tests on the simulated device, with ``"cuda"`` as its name, and count causes.

Run: ``python -m simgpu.tests.pytorch_device_tests --pytorch CLONE test_torch.py test_cuda.py``. The
tests stay in your clone of PyTorch, at the version you have installed; they need ``expecttest`` and
``hypothesis``. Each file runs in a process of its own. After a crash or a hang, another process goes on
behind that test. What fails is run for the CPU too.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import unittest
from collections import Counter
from pathlib import Path
from typing import Any

FILES = (
    "test_cuda.py",
    "test_torch.py",
    "test_nn.py",
    "test_optim.py",
    "test_serialization.py",
    "test_autocast.py",
)
CPU_FAILS = "The CPU fails this test as well."

# Causes that are not the simulated device's: what the exception's last line has in it, and why.
NOT_OURS = {
    "needs CUDA itself": "needs CUDA graphs or memory pools, which the device refuses",
    "CUDA driver version is insufficient": "a C++ function of PyTorch reaches for the driver",
    "Cannot find a working triton": "needs Triton",
    "No module named": "needs a package or a file that is not installed",
    "aten::cudnn_": "calls an operator that PyTorch has for cuDNN alone",
    "aten::batch_norm_gather_stats": "calls an operator that PyTorch has for CUDA alone",
    "_is_cow_tensor is not defined": "PyTorch refuses it for tensors of a device made in Python",
}


class Recorder(unittest.TestResult):
    """A result that writes each start and each outcome of a test to a file, one JSON list a line."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self.path = path

    def write(self, test: unittest.TestCase, outcome: str, cause: str = "") -> None:
        """Append the outcome of a test: ``started``, ``passed``, ``failed`` or ``skipped``."""
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(json.dumps([test.id().removeprefix("__main__."), outcome, cause]) + "\n")

    def startTest(self, test: unittest.TestCase) -> None:
        """Write that a test starts."""
        super().startTest(test)
        self.write(test, "started")

    def addSuccess(self, test: unittest.TestCase) -> None:
        """Write that a test passed."""
        self.write(test, "passed")

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:
        """Write that a test was skipped."""
        self.write(test, "skipped", reason)

    def addExpectedFailure(self, test: unittest.TestCase, err: Any) -> None:
        """Write that a test failed as it should."""
        self.write(test, "passed")

    def addUnexpectedSuccess(self, test: unittest.TestCase) -> None:
        """Write that a test passed that should fail."""
        self.write(test, "failed", "unexpected success")

    def addFailure(self, test: unittest.TestCase, err: Any) -> None:
        """Write that a test failed, and the first line of its exception's message."""
        text = str(err[1]).strip() or "no message"
        self.write(test, "failed", f"{err[0].__name__}: {text.splitlines()[0][:200]}")

    addError = addFailure

    def addSubTest(self, test: unittest.TestCase, subtest: unittest.TestCase, err: Any) -> None:
        """Write that a part of a test failed; `addSuccess` is not called then."""
        if err is not None:
            self.addFailure(test, err)


def run_here(args: argparse.Namespace) -> None:
    """Run one file in this process; write outcomes to ``args.record`` and leave out what stands there."""
    path = Path(args.files[0]).resolve()
    if args.device == "cuda":
        import simgpu

        simgpu.enable("A100", args.cards, args.memory, named="cuda")
        from torch.testing._internal import common_utils

        # It gives a test another stream by a C++ function of CUDA; the test itself needs none.
        common_utils.CudaNonDefaultStream = contextlib.nullcontext
    sys.path.insert(0, str(path.parent))
    sys.argv = [str(path)]
    module = __import__(path.stem)
    done = outcomes(args.record)
    chosen = json.loads(Path(args.only).read_text(encoding="utf-8")) if args.only else None
    result = Recorder(args.record)

    def run(suite: Any) -> None:
        for part in suite:
            if isinstance(part, unittest.TestSuite):
                run(part)
            elif part.id() not in done and (
                part.id() in chosen if chosen is not None else re.search(args.k, part.id())
            ):
                run_class(part, result)

    run(unittest.TestLoader().loadTestsFromModule(module))
    os._exit(0)  # what a test left behind in threads must not keep the process


def run_class(test: unittest.TestCase, result: Recorder) -> None:
    """Run a test, and before the first of its class what the class needs."""
    if "prepared" not in vars(type(test)):
        type(test).prepared = True
        type(test).setUpClass()
    test.run(result)


def outcomes(record: str) -> dict[str, tuple[str, str]]:
    """Return outcome and cause of each test in a record; a failure stays one."""
    seen: dict[str, tuple[str, str]] = {}
    if Path(record).exists():
        for line in Path(record).read_text(encoding="utf-8").splitlines():
            name, outcome, cause = json.loads(line)
            if seen.get(name, ("",))[0] != "failed":
                seen[name] = outcome, cause
    return seen


def run_file(args: argparse.Namespace, path: Path, device: str, only: list[str] | None = None) -> dict:
    """Run a file in processes of its own until all tests have an outcome, or its time is over."""
    end = time.monotonic() + args.seconds
    with tempfile.TemporaryDirectory() as folder:
        record = str(Path(folder) / "record")
        command = [sys.executable, "-m", __spec__.name, str(path), "--device", device, "--record", record]
        command += ["--memory", args.memory, "--cards", str(args.cards), "-k", args.k]
        if only is not None:
            chosen = Path(folder) / "only"
            chosen.write_text(json.dumps(only), encoding="utf-8")
            command += ["--only", str(chosen)]
        env = {**os.environ, "PYTORCH_TESTING_DEVICE_ONLY_FOR": device, "CUDA_VISIBLE_DEVICES": ""}
        if device == "cuda":
            env["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, range(args.cards)))
        while True:
            before = len(outcomes(record))
            with open(Path(folder) / "log", "w+", encoding="utf-8") as log:
                process = subprocess.Popen(command, env=env, stdout=log, stderr=log)
                cause = wait(process, record, args.test_seconds, end)
                log.seek(0)
                tail = log.read().strip().splitlines()[-1:] or [""]
            seen = outcomes(record)
            open_tests = [name for name, (outcome, _) in seen.items() if outcome == "started"]
            for name in open_tests:
                with open(record, "a", encoding="utf-8") as file:
                    file.write(json.dumps([name, "crashed", f"{cause}: {tail[0][:150]}"]) + "\n")
            if cause == "out of time":
                seen.update(dict.fromkeys(open_tests, ("not run", cause)))
                return seen
            if not cause:
                return seen
            if len(seen) == before:
                return {**seen, path.stem: ("crashed", f"{cause}: {tail[0][:200]}")}


def wait(process: subprocess.Popen, record: str, test_seconds: float, end: float) -> str:
    """Wait for a process, and end it if a test or the file takes too long; return why it ended early."""
    size, changed = -1, time.monotonic()
    while process.poll() is None:
        time.sleep(0.5)
        now = time.monotonic()
        grown = os.path.getsize(record) if os.path.exists(record) else 0
        if grown != size:
            size, changed = grown, now
        if now > end or now - changed > test_seconds:
            process.kill()
            process.wait()
            return "out of time" if now > end else f"no outcome in {test_seconds:g} s"
    return f"exit status {process.returncode}" if process.returncode else ""


def cpu_name(name: str) -> str:
    """Return the name that a test has for the CPU."""
    file, _, test = name.partition(".")
    return f"{file}.{test.replace('CUDA', 'CPU').replace('_cuda', '_cpu')}"


def reason(cause: str) -> str:
    """Return why a cause is not the simulated device's, or an empty text."""
    return next((why for text, why in NOT_OURS.items() if text in cause), "")


def main() -> None:
    """Run the files and print the table and the causes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="*", default=FILES, help="files of PyTorch's folder test")
    parser.add_argument("--pytorch", type=Path, help="a clone of PyTorch")
    parser.add_argument("-k", default="", help="run only tests whose name matches this regular expression")
    parser.add_argument("--seconds", type=float, default=3600, help="for each file")
    parser.add_argument("--test-seconds", type=float, default=120, help="for each test")
    parser.add_argument("--memory", default="4GB", help="of each card")
    parser.add_argument("--cards", type=int, default=1)
    parser.add_argument("--names", action="store_true", help="print the name of each failed test")
    for hidden in ("--device", "--record", "--only"):
        parser.add_argument(hidden, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.record:
        run_here(args)
    columns = ["passed", "failed", "skipped", "crashed"]
    print("file", *columns, "of the failed not ours", sep=" | ")
    causes: dict[str, list[str]] = {}
    for name in args.files:
        path = args.pytorch / "test" / name
        seen = run_file(args, path, "cuda")
        bad = {key: cause for key, (outcome, cause) in seen.items() if outcome in ("failed", "crashed")}
        on_cpu = {key: cpu_name(key) for key in bad}
        plain = run_file(args, path, "cpu", list(on_cpu.values())) if bad else {}
        if path.stem in plain:
            print(f"  {name} does not run on the CPU: {plain[path.stem][1]}")
        if bad and not plain:
            print(f"  {name} has none of the failed tests for the CPU")
        not_ours = 0
        for key, cause in bad.items():
            if plain.get(on_cpu[key], ("",))[0] in ("failed", "crashed"):
                cause = CPU_FAILS
            not_ours += bool(reason(cause)) or cause == CPU_FAILS
            causes.setdefault(cause, []).append(key)
        counted = Counter(outcome for outcome, _ in seen.values())
        print(name, *(counted[column] for column in columns), not_ours, sep=" | ", flush=True)
        if counted["not run"] or counted["started"]:
            print(f"  {name} was ended: its time was over")
    for cause, names in sorted(causes.items(), key=lambda item: -len(item[1])):
        print(f"{len(names):5}  {cause}" + (f"  [not ours: {reason(cause)}]" if reason(cause) else ""))
        if args.names:
            print(*(f"         {name}" for name in names), sep="\n")


if __name__ == "__main__":
    main()
