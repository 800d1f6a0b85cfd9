"""Commands that are killed or interrupted at any line, and several at once: no work is lost."""

import argparse
import os
import random
import shutil
import signal
import sys
import time
import traceback

import pytest
import torch
from harness import ROOT
from support import skip
from test_reset import LESSON, _git, clone, home, publish, write  # noqa: F401  (fixtures)
from torch import nn

from course_lessons.shared import checkpoint
from course_utils import cli, files, progress_file
from course_utils.cli import reset, update

SIGNALS = signal.SIGKILL, signal.SIGINT, signal.SIGTERM
OURS = tuple(str(ROOT / name) for name in ("course_utils", "course_lessons"))


@pytest.fixture(autouse=True)
def _posix():
    if not hasattr(os, "fork"):
        skip("Windows has no fork", until="2027-11-30")


def begun(work):
    """Fork a child that does some work; return its process id."""
    child = os.fork()
    if not child:
        try:
            signal.signal(signal.SIGINT, signal.default_int_handler)  # a test run may ignore Ctrl-C
            work()
        except BaseException:  # noqa: BLE001  (as Python does where nobody catches it)
            traceback.print_exc()
        finally:
            os._exit(0)
    return child


def stopped_at(line, number, work):
    """Work in a forked child that sends itself a signal at a line; return how many lines it executed."""
    reader, writer = os.pipe()

    def traced():
        ran = 0

        def trace(frame, event, _):
            nonlocal ran
            if not frame.f_code.co_filename.startswith(OURS):
                return None
            ran += event == "line"
            if event == "line" and ran == line:
                os.kill(os.getpid(), number)
            return trace

        sys.settrace(trace)
        try:
            work()
        finally:
            sys.settrace(None)
            os.write(writer, str(ran).encode())

    child = begun(traced)
    os.close(writer)
    with os.fdopen(reader) as said:
        ran = int(said.read() or 0)
    os.waitpid(child, 0)
    return ran


def at_each_line(prepare, work, *numbers, step=1):
    """Interrupt some work at each line by each signal; yield after each. ``prepare`` restores the start."""
    prepare()
    last = stopped_at(0, 0, work)
    for line in range(1, last + 1, step):
        for number in numbers:
            prepare()
            stopped_at(line, number, work)
            yield


@pytest.mark.everywhere
def test_a_reset_stopped_at_each_line_loses_no_work(tmp_path, monkeypatch, capfd):
    mine, fresh = "mine" * 1000, "fresh" * 1000
    course = reset.load_course()
    monkeypatch.setattr(reset, "_folder", lambda course: tmp_path)
    monkeypatch.setattr(reset, "load_course", lambda: course)
    monkeypatch.setattr(reset, "fresh_notebook", lambda lesson: fresh)

    def prepare():
        for path in tmp_path.iterdir():
            path.unlink()
        write(tmp_path, LESSON, mine)

    work = lambda: cli.main(["reset", "01"])  # noqa: E731
    for times, _ in enumerate(at_each_line(prepare, work, *SIGNALS)):
        # `try` itself, the first line, is not yet within it
        assert "Traceback" not in capfd.readouterr().err or times < 3
        shown = [path for path in tmp_path.iterdir() if path.name[0] != "."]
        texts = {path.read_text(encoding="utf-8") for path in shown}
        assert mine in texts and texts <= {mine, fresh}


@pytest.fixture
def news(home, clone, tmp_path):  # noqa: F811
    """Return a clone with an edited lesson that its origin changed, too, and a function that restores it."""
    publish(home, {f"notebooks/{LESSON}": "newer\n", "notebooks/03_new.ipynb": "lesson 3\n"})
    write(clone, f"notebooks/{LESSON}", "mine\n")
    folder = tmp_path / "tried"

    def prepare():
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(clone, folder)

    prepare()
    return folder, prepare


def mine_is_kept(folder):
    texts = [p.read_text(encoding="utf-8") for p in (folder / "notebooks").glob("*.ipynb")]
    return "mine\n" in texts and "" not in texts


@pytest.mark.everywhere
def test_an_update_stopped_at_every_second_line_loses_no_work(news, capfd):
    folder, prepare = news
    work = lambda: update.main(argparse.Namespace(), folder)  # noqa: E731
    for _ in at_each_line(prepare, work, *SIGNALS, step=2):
        assert mine_is_kept(folder)


@pytest.mark.slow
def test_three_updates_at_once_lose_no_work(news, capfd):
    folder, prepare = news
    for _ in range(8):
        prepare()
        for child in [begun(lambda: update.main(argparse.Namespace(), folder)) for _ in range(3)]:
            os.waitpid(child, 0)
        assert mine_is_kept(folder)


@pytest.mark.slow
def test_writers_of_progress_lose_nothing_together_or_killed(tmp_path):
    def writes(times):
        for number in range(times):
            progress_file.record_attempt(f"01.by{os.getpid()}", "right", str(number))

    for child in [begun(lambda: writes(250)) for _ in range(4)]:
        os.waitpid(child, 0)
    assert len(list(progress_file.attempts())) == len(set(progress_file.attempts())) == 1000
    draw, kept = random.Random(0), set(progress_file.attempts())
    for _ in range(20):
        child = begun(lambda: writes(10**6))
        time.sleep(draw.uniform(0, 0.02))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        progress_file.record_attempt("01.speedup", "right", "after")
        now = list(progress_file.attempts())
        assert kept <= set(now) and now[-1].diagnosis == "after"
        kept = set(now)


WRONG = """
reset|reset 77|reset ../x|reset 01 x|reset -1|reset 0x1|reset 01.ipynb|hand-in --name
hand-in --name a/b --output OUT|hand-in --name a --output FILE/x|hand-in --name a|explain --x
template none|template ddp --output ROOM|template ddp --output FILE/x|class-report|class-report NONE
class-report FILE|class-report ROOM --lesson 42|class-report ROOM --names NONE
class-report ROOM --names ROOM|class-report ROOM --output FILE/x|record --check NONE|record --check FILE
record --check ROOM|record --only none|record --modelled V100|record --check|record --quick=1
record --list --only|slides|slides 42|slides ../x|slides 01 --output|answers 42|answers x --output OUT
translate --check xx|translate --check ..|notebooks NONE|notebooks --check NONE|notebooks --check FILE
notebooks --check ROOM|links --repo|links --branch|bundle --output FILE|bundle --torch keep
bundle --extra x|bundle --extra lab --torch cuda|bundle --torch|reset 1 1x|class-report FILE --names FILE
site --output ROOM --x|site --from NONE|nothing|resett 01|doctor 1|lab --torch|update now|test --x|--x
reset --help=1|explain --help=1|template ddp --output|class-report ROOM --lesson|hand-in --output
update --torch
"""


@pytest.mark.slow
def test_wrong_arguments_and_files_are_answered_with_a_sentence(tmp_path, monkeypatch, capsys):
    (tmp_path / "ROOM").mkdir()
    (tmp_path / "FILE").write_bytes(bytes(range(256)))
    monkeypatch.chdir(tmp_path)
    wrong = []
    for line in WRONG.replace("\n", "|").strip("|").split("|"):
        try:
            status = cli.main(line.split())
        except SystemExit as left:  # argparse's
            status = left.code
        except Exception as error:  # noqa: BLE001  (a learner would see a traceback)
            status = repr(error)
        said = "".join(capsys.readouterr())
        if status not in (1, 2) or not said.strip() or "Traceback" in said:
            wrong.append((line, status, said))
    assert wrong == []


@pytest.mark.slow
def test_a_checkpoint_saved_and_stopped_at_each_line_is_whole(tmp_path):
    old, new = nn.Linear(20, 10), nn.Linear(20, 10)

    def prepare():
        shutil.rmtree(tmp_path / "run", ignore_errors=True)
        checkpoint.save(tmp_path / "run", 1, net=old)

    def work():
        checkpoint.save(tmp_path / "run", 2, net=new)

    def resumed():
        net = nn.Linear(20, 10)
        epochs = checkpoint.resume(tmp_path / "run", net=net)
        assert torch.equal(net.weight, (old, new)[epochs - 1].weight)
        return epochs

    for _ in at_each_line(prepare, work, *SIGNALS):
        assert resumed() == 1
    work()
    assert resumed() == 2


@pytest.mark.everywhere
def test_keeping_progress_elsewhere_stopped_at_each_line_loses_none(tmp_path, monkeypatch):
    old, new = tmp_path / "old.jsonl", tmp_path / "kept" / "new.jsonl"
    monkeypatch.setenv("COURSE_PROGRESS", str(old))
    for number in range(20):
        progress_file.record_attempt("01.speedup", "right", str(number))
    before = old.read_bytes()

    def prepare():
        shutil.rmtree(new.parent, ignore_errors=True)

    for _ in at_each_line(prepare, lambda: progress_file.move_to(new), signal.SIGKILL, signal.SIGINT):
        assert old.read_bytes() == before
        with monkeypatch.context() as patch:
            patch.setenv("COURSE_PROGRESS", str(old))
            progress_file.move_to(new)
            assert len(list(progress_file.attempts())) == 20


@pytest.mark.slow
def test_a_file_that_grows_while_it_is_read_is_cut_at_its_limit(tmp_path):
    path = tmp_path / "grows.json"
    for _ in range(50):
        path.write_bytes(b" " * 100)
        child = begun(lambda: [path.open("ab").write(b" " * 5000) for _ in range(200)])
        try:
            assert len(files.read_text(path, max_bytes=2000)) <= 2000
        except files.FileError as error:
            assert "far more than such a file" in str(error)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
