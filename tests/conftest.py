"""Shared configuration of the tests: markers, distribution, and a progress file for each test."""

import gc
import itertools
import os
import re
import sys
import traceback
from types import SimpleNamespace

import pytest

sys.modules.setdefault("rfc3987_syntax", None)  # as in tools: pytest's plugins may be first


def pytest_configure(config):
    """Register the markers."""
    config.pluginmanager.import_plugin("support")  # prints recorded tables
    config.addinivalue_line("markers", "slow: takes seconds; left out by test --quick")
    config.addinivalue_line("markers", "notebook: runs a whole lesson; two at once at most")
    config.addinivalue_line(
        "markers", "everywhere: platforms, site, browser, endurance; run by test --everywhere"
    )
    config.addinivalue_line("markers", "serial: measures, or needs the machine; never two at once")


def pytest_ignore_collect(collection_path, config):
    """Skip importing files without tests of the marker asked for, which would take ten seconds for all."""
    wanted = config.option.markexpr.partition(" ")[0]
    if collection_path.suffix == ".py" and wanted in ("notebook", "everywhere", "serial"):
        text = collection_path.read_text(encoding="utf-8")
        if f"mark.{wanted}" not in text and "EACH_LESSON" not in text:  # these bring their own mark
            return True
    return None


LESSONS = ("06", "11", "04", "03", "05", "07", "08", "09", "01")
LONGEST = (
    *("simgpu_conformance", "lesson04", "lesson03", "simgpu_processes", "templates", "launch"),
    *("exercises", "bootstrap", "guard", "kill", "simgpu_programs", "lesson11", "lesson06"),
    *("record", "cluster", "lesson07", "fidelity", "catch_up", "bundle", "notebook_form"),
    *("readme", "lesson08", "workshop", "home"),
)
"""The order in which xdist's workers start tests: lessons, then files, the longest first, so that no worker
has to wait at the end."""

BY_LESSON = ("test_exercises.py", "test_as_shipped.py", "test_translated_lessons.py")
"""Files whose tests are distributed to workers by lesson; any other file goes to one worker as a whole."""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Distribute tests as ``--dist loadfile`` does, but those of `BY_LESSON` lesson by lesson."""
    if config.option.dist != "loadfile":
        return None
    from xdist.scheduler import LoadScopeScheduling

    class ByFileOrLesson(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            file, _, test = nodeid.partition("::")
            lesson = re.search(r"\[(?:\w+-)?(\d\d)\b", test)
            return file + lesson[1] if lesson and file.endswith(BY_LESSON) else file

    return ByFileOrLesson(config, log)


def pytest_collection_modifyitems(config, items):
    """Sort the tests by `_order` in workers of xdist."""
    if hasattr(config, "workerinput"):
        items.sort(key=_order)


def _order(item):
    """Return a test's sort key: lessons before other files, in the order of the lists above."""
    if item.get_closest_marker("notebook"):
        group, known, name = 0, LESSONS, item.name.partition("[")[2][:-1]
    else:
        group, known, name = 1, LONGEST, item.path.stem.removeprefix("test_")
    return group, known.index(name) if name in known else len(known)


_unfreeze, _frozen_at = gc.unfreeze, [0]


def _let_go():
    _frozen_at[0] = 0
    _unfreeze()


gc.unfreeze = _let_go


def pytest_unconfigure():
    """Let the end of the process find everything."""
    _unfreeze()


@pytest.fixture(autouse=True)
def _quick_collection():
    """Freeze the objects of imported modules, so that ``gc.collect()`` in checks and devices is faster."""
    if _frozen_at[0] != len(sys.modules):
        _seed_without_a_stack()
        gc.collect()
        gc.freeze()
        _frozen_at[0] = len(sys.modules)


_NO_STACK = SimpleNamespace(**vars(traceback) | {"format_stack": list})


def _seed_without_a_stack():
    """Make ``manual_seed`` skip its stack traces for unused kinds of GPU, which take milliseconds."""
    for name in ("torch.cuda", "torch.xpu", "torch.mtia"):
        if hasattr(sys.modules.get(name), "traceback"):
            sys.modules[name].traceback = _NO_STACK


_number = itertools.count()


@pytest.fixture(autouse=True)
def _own_progress(request, monkeypatch, tmp_path_factory):
    """Set ``COURSE_PROGRESS`` to a file of the test's own; a folder for each would take too long."""
    if "tmp_path" in request.fixturenames:
        folder = request.getfixturevalue("tmp_path")
        name = "progress.jsonl"
    else:
        folder, name = tmp_path_factory.getbasetemp(), f"progress{next(_number)}.jsonl"
    monkeypatch.setenv("COURSE_PROGRESS", str(folder / name))


@pytest.fixture(autouse=True)
def _same_process(monkeypatch):
    """Make ``os.execve`` fail, so that no command replaces the test run."""

    def refuse(*call):
        raise AssertionError(f"a test wanted to become {call[0]}")

    monkeypatch.setattr(os, "execve", refuse)


@pytest.fixture
def simulated():
    """Return simgpu; skip the test if no device can be simulated."""
    from support import skip

    import simgpu

    if problem := simgpu.unavailable_reason():
        skip(problem, until="2027-11-30")
    return simgpu


@pytest.fixture
def two_devices(simulated):
    """Enable two simulated T4s, however many the process had before."""
    simulated.enable(devices=2)
