"""The ledger compares two loops in turns, keeps what is faster and learns, and forgets nothing."""

from __future__ import annotations

import json
import os
from functools import partial
from itertools import pairwise

import pytest
import torch
from test_checkpoints import spoilt
from torch import nn

from course_lessons.lesson10 import ledger as module
from course_lessons.lesson10.ledger import MARGIN, ROUNDS, Ledger
from course_lessons.lesson10.rung import described
from course_utils import predictions, progress_file, todo

START = {"seconds": 1.0, "images": 10, "skill": 0.9}


class Clockwork:
    """A fake clock that advances only when a training step says so."""

    def __init__(self, folder) -> None:
        self.folder = folder
        self.now, self.order, self.closed, self.slow = 0.0, [], 0, {}

    def training(self, parts):
        model = nn.Linear(1, 1)
        model.skill = parts["skill"]
        if parts.get("error"):
            raise parts["error"]
        try:
            while True:
                self.order.append(parts["seconds"])
                self.now += parts["seconds"] * self.slow.get(len(self.order) // 40 % 3, 1.0)
                yield model, parts["images"]
        finally:
            self.closed += 1

    def ledger(self, **changes) -> Ledger:
        return Ledger(
            self.training,
            START | changes,
            "cpu",
            evaluate=lambda model: model.skill,
            epoch=30,
            folder=self.folder,
        )


@pytest.fixture
def world(monkeypatch, tmp_path):
    clockwork = Clockwork(tmp_path / "new folder")
    monkeypatch.setattr(predictions, "all_predictions", {})
    monkeypatch.setattr(module, "perf_counter", lambda: clockwork.now)
    return clockwork


def tried(ledger, name, change, *args, **how):
    ledger.try_out(name, change, *args, **how)
    return next(rung for rung in ledger.rungs if rung.name == name)


def test_a_faster_loop_that_learns_is_kept_and_its_images_count_not_its_steps(world):
    ledger = world.ledger()
    rung = tried(ledger, "half the time", {"seconds": 0.5})
    assert rung.kept and rung.speed_up.median == pytest.approx(2.0)
    assert (rung.speed_up.n, rung.speed_up.unit, rung.speed_up.kind) == (ROUNDS, "1", "measured")
    assert ledger.best == START | {"seconds": 0.5}
    assert ledger.base.median == pytest.approx(10.0)
    assert world.closed == 4  # two loops that took turns, two that learned
    rung = tried(world.ledger(), "large batch", {"images": 40, "seconds": 2.0})
    assert rung.speed_up.median == pytest.approx(2.0)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"seconds": 2.0}, "slower"),
        ({"seconds": 1.0, "note": "the same"}, "no gain beyond the spread"),
        ({"seconds": 0.5, "skill": 0.9 - MARGIN - 0.01}, "learns less"),
    ],
)
def test_what_is_no_gain_is_left_out_and_says_why(world, change, why):
    ledger = world.ledger()
    rung = tried(ledger, "a change", change)
    assert not rung.kept and why in rung.why
    assert (rung.accuracy is None) == (why != "learns less")  # only a faster loop is trained
    assert ledger.best == START


def test_the_learner_can_decide(world):
    ledger = world.ledger()
    assert tried(ledger, "free", {"seconds": 1.0, "note": 1}, keep=True).kept
    assert not tried(ledger, "fast", {"seconds": 0.5}, keep=False).kept
    assert ledger.best == START | {"note": 1}


def test_two_loops_take_turns_and_each_begins_half_of_the_rounds(world):
    ledger = world.ledger(seconds=0.0625)
    ledger.compare(ledger.start, ledger.start | {"seconds": 0.03125})
    runs = [seconds for seconds, after in pairwise([*world.order, 0]) if seconds != after]
    assert len(runs) == 2 + 1 + ROUNDS  # calibration, then one change a round: neighbours join


def test_a_busy_machine_does_not_move_the_ratio_of_neighbours(world):
    world.slow = {1: 3.0}
    rung = tried(world.ledger(seconds=0.01), "half", {"seconds": 0.005})
    assert rung.speed_up.median == pytest.approx(2.0, rel=0.35)


def test_a_change_that_fails_is_noted_in_one_line(world, capsys):
    ledger = world.ledger()
    rung = tried(ledger, "fails", {"error": NotImplementedError("not on this device\nmore")})
    assert (rung.kept, rung.speed_up) == (False, None)
    assert "not on this device" in rung.why and "\n" not in rung.why
    assert "does not run here" in capsys.readouterr().out
    assert ledger.best == START
    with pytest.raises(NameError):  # the learner's own mistake is not swallowed
        ledger.try_out("typo", {"error": NameError("name 'x' is not defined")})


def test_unless_measures_nothing(world, capsys):
    ledger = world.ledger()
    rung = tried(ledger, "TF32", {"seconds": 0.1}, unless="cpu has no TF32 units.")
    assert (rung.speed_up, rung.kept, rung.why) == (None, False, "cpu has no TF32 units.")
    capsys.readouterr()
    ledger.take_in("two ranks", {"ranks": 2}, unless="there is one card only.")
    assert not ledger.rungs[1].kept and "one card only" in capsys.readouterr().out
    assert world.order == []


def test_a_cell_that_runs_again_replaces_its_rung_in_place(world):
    ledger = world.ledger()
    ledger.try_out("a", {"seconds": 0.5})
    ledger.try_out("b", {"images": 20})
    again = tried(ledger, "a", {"seconds": 0.25})
    assert [rung.name for rung in ledger.rungs] == ["a", "b"]
    assert again.speed_up.median == pytest.approx(4.0)  # against the first loop, not against b
    assert ledger.best == START | {"seconds": 0.25, "images": 20}
    assert ledger.whole().median == pytest.approx(8.0)  # the whole ladder at once


def test_the_guess_is_scored_and_kept_beside_the_measurement(world, capsys):
    ledger = world.ledger()
    assert tried(ledger, "a", {"seconds": 0.5}, 3.0).predicted == 3.0
    assert "You predicted 3×. Found: 2×" in capsys.readouterr().out
    assert list(progress_file.predictions()) == ["10.a"]
    assert tried(ledger, "a", {"seconds": 0.5}, 2.0).predicted == 3.0
    assert "your first prediction, 3×, stays" in capsys.readouterr().out


def test_a_guess_after_the_answer_does_not_count(world, capsys):
    ledger = world.ledger()
    assert tried(ledger, "a", {"seconds": 0.5}, todo()).predicted is None
    assert "prediction" not in capsys.readouterr().out
    assert tried(ledger, "a", {"seconds": 0.5}, 2.0).predicted is None
    assert "does not count" in capsys.readouterr().out


def test_the_report_card_is_a_picture_and_json(world, capsys):
    ledger = world.ledger()
    ledger.try_out("a", {"seconds": 0.5})
    ledger.try_out("b", {}, unless="not here.")
    ledger.result("MFU", "12 % (of the best)")
    ledger.result("a run", module.Measurement.of([1.0, 2.0, 3.0], "a run", "cpu"))
    capsys.readouterr()
    picture, record = ledger.save("MFU", "no such result")
    assert picture.read_bytes().startswith(b"\x89PNG")
    said = capsys.readouterr().out
    assert "MFU: 12 %" in said and "a run: 2 s (1.5 s to 2.5 s), n = 3" in said
    content = json.loads(record.read_text(encoding="utf-8"))
    assert [rung["name"] for rung in content["rungs"]] == ["a", "b"]
    assert content["rungs"][0]["speed_up"]["median"] == pytest.approx(2.0)
    assert content["results"]["MFU"] == "12 % (of the best)"
    assert content["results"]["a run"]["median"] == 2.0
    assert content["accuracy of the first loop"] == 0.9


def test_a_dead_session_goes_on_where_it_was(world, capsys):
    lost = world.ledger()
    lost.try_out("a", {"seconds": 0.5}, 3.0)
    lost.try_out("b", {"seconds": 0.6})
    lost.try_out("c", {}, unless="not here.")
    del lost
    ledger, steps = world.ledger(), len(world.order)
    ledger.resume()
    assert "2 rungs are taken up" in capsys.readouterr().out
    first, second = (tried(ledger, name, {"seconds": s}) for name, s in (("a", 0.5), ("b", 0.6)))
    assert len(world.order) == steps  # nothing was measured
    assert "As found before" in capsys.readouterr().out
    assert (first.kept, first.predicted, second.kept) == (True, 3.0, False)
    assert first.speed_up.median == pytest.approx(2.0)
    assert ledger.best == START | {"seconds": 0.5}
    assert (ledger.base.median, ledger.reference) == (pytest.approx(10.0), 0.9)
    new = tried(ledger, "d", {"images": 20})
    assert new.speed_up.median == pytest.approx(2.0) and new.stands_on == ("a",)
    ledger.try_out("a", {"seconds": 0.5})
    assert len(world.order) > steps + 100  # the second time it is measured


@pytest.mark.slow
def test_a_wrong_bit_in_its_file_is_never_taken_for_a_measurement(world, capsys):
    lost = world.ledger()
    lost.try_out("a", {"seconds": 0.5})
    (path,) = world.folder.glob("*.json")
    whole = path.read_bytes()
    harmless = whole.replace(b'"sha256"', b'"sha257"')  # no sum, as in a file of an older course
    for data in (harmless, *spoilt(whole)):
        path.write_bytes(data)
        ledger = world.ledger()
        ledger.resume()
        for rung in ledger._resumed_rungs.values():
            assert rung.speed_up.median == lost.rungs[0].speed_up.median
    assert capsys.readouterr().out.count("this climb begins again") > 590


def test_what_is_not_as_it_was_is_measured_anew(world):
    lost = world.ledger()
    lost.try_out("a", {"seconds": 0.5})
    lost.try_out("b", {"images": 20})
    lost.try_out("c", {"note": 1}, keep=True)
    ledger, steps = world.ledger(), len(world.order)
    ledger.resume()
    ledger.try_out("b", {"images": 20})  # nothing below it yet
    assert len(world.order) > steps
    ledger = world.ledger()
    ledger.resume()
    assert tried(ledger, "a", {"seconds": 0.25}).speed_up.median == pytest.approx(4.0)
    steps = len(world.order)
    assert tried(ledger, "b", {"images": 20}).stands_on == ("a",)
    assert len(world.order) > steps  # its names are what they were, and a is not


@pytest.mark.parametrize(
    ("again", "keep", "said"),
    [(None, None, False), ({"seconds": 0.5}, False, True), ({"seconds": 0.25}, None, True)],
)
def test_the_table_names_what_was_measured_on_another_ladder(world, capsys, again, keep, said):
    ledger = world.ledger()
    ledger.try_out("a", {"seconds": 0.5})
    ledger.try_out("b", {"images": 20})
    ledger.try_out("TF32", {}, unless="not here.")
    if again:
        ledger.try_out("a", again, keep=keep)
    capsys.readouterr()
    ledger.table()
    shown = capsys.readouterr().out
    assert ("measured on another ladder than this one: b\n" in shown) is said
    ledger.try_out("b", {"images": 20})
    capsys.readouterr()
    ledger.table()
    assert "another ladder" not in capsys.readouterr().out


def test_the_first_loops_accuracy_is_shown_once(world, capsys):
    ledger = world.ledger()
    for name in "ab":
        ledger.try_out(name, {"seconds": 0.5})
    said = "The first loop has 90.0% after one epoch; what is kept, at least 80.0%."
    assert capsys.readouterr().out.count(said) == 1
    again = world.ledger()
    again.resume()
    assert capsys.readouterr().out.count(said) == 1


def test_the_newest_climb_is_taken_up_or_the_one_that_is_named(world, capsys):
    for number, name in enumerate("ab"):
        world.ledger().try_out(name, {"seconds": 0.5})
        path = sorted(world.folder.iterdir())[number]
        os.utime(path, (number, number))
    ledger = world.ledger()
    ledger.resume()
    assert list(ledger._resumed_rungs) == ["b"]
    ledger.resume(sorted(world.folder.iterdir())[0])
    assert list(ledger._resumed_rungs) == ["a"]


def test_a_climb_of_another_kind_is_not_taken_up(world, capsys):
    world.ledger(seconds=2.0).try_out("a", {"seconds": 0.5})
    ledger = world.ledger()
    ledger.resume()
    assert "not the same parts of the first loop" in capsys.readouterr().out
    assert not ledger._resumed_rungs and ledger.base is None


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"rungs": [{}]}', '{"rungs": [1]}'])
def test_a_damaged_climb_is_not_taken_up(world, capsys, text):
    file = world.folder / "capstone_cpu_2026-01-01_000000.json"
    file.parent.mkdir()
    file.write_text(text, encoding="utf-8")
    world.ledger().resume()
    assert "cannot be read" in capsys.readouterr().out


def test_a_folder_that_cannot_be_written_to_costs_no_measurement(world, capsys):
    world.folder.write_text("a file", encoding="utf-8")
    assert tried(world.ledger(), "a", {"seconds": 0.5}).kept
    assert "cannot be written to" in capsys.readouterr().out


def test_what_makes_no_sense_is_refused(world, tmp_path):
    with pytest.raises(ValueError, match="real clock"):
        Ledger(world.training, START, "sim", evaluate=len, epoch=1, folder=tmp_path)
    with pytest.raises(ValueError, match="try a rung first"):
        world.ledger().save()


def test_the_table_and_the_picture_say_what_was_left_out(world, capsys):
    ledger = world.ledger()
    ledger.try_out("half", {"seconds": 0.5})
    ledger.try_out("TF32", {}, unless="cpu has no TF32 units.")
    capsys.readouterr()
    ledger.table()
    ledger.draw(limit=100.0)
    said = capsys.readouterr().out
    assert "cpu has no TF32 units." in said and "not measured" in said
    assert "20 images/s, kept" in said and "The floor allows 100 images/s" in said


@pytest.mark.parametrize(
    ("ratios", "accuracy", "kept", "why"),
    [
        ([1.5] * 9, 0.9 - MARGIN + 0.01, True, "faster, and it learns"),
        ([0.9] * 4 + [1.1] * 5, 0.9, False, "no gain beyond the spread"),
        ([1.5] * 9, 0.9 - MARGIN - 0.01, False, "learns less"),
    ],
)
def test_what_was_measured_elsewhere_is_judged_by_the_same_rule(world, ratios, accuracy, kept, why):
    ledger = world.ledger()
    ledger.take_in("two ranks", {"ranks": 2}, ratios, accuracy)
    (rung,) = ledger.rungs
    assert rung.kept is kept and why in rung.why


def test_each_ladder_has_files_of_its_own_and_counts_in_its_own_unit(world, capsys):
    def gpt():
        return Ledger(
            world.training,
            START,
            "cpu",
            evaluate=lambda model: model.skill,
            epoch=30,
            folder=world.folder,
            name="gpt",
            unit="letters",
        )

    ledger = gpt()
    ledger.try_out("a", {"seconds": 0.5})
    assert [path.name[:7] for path in world.folder.iterdir()] == ["gpt_cpu"]
    capsys.readouterr()
    ledger.draw(limit=100.0)
    said = capsys.readouterr().out
    assert "20 letters/s, kept" in said and "An MFU of 100 % is 100 letters/s" in said
    world.ledger().resume()
    assert "no earlier climb" in capsys.readouterr().out
    gpt().resume()
    assert "1 rungs are taken up" in capsys.readouterr().out


def test_a_part_that_was_given_something_is_described_by_it():
    part = partial(torch.optim.SGD, momentum=0.9)
    assert described({"optimizer": part}) == {"optimizer": "SGD(momentum=0.9)"}
