"""The ledger compares two loops in turns, keeps what is faster and learns, and forgets nothing."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
import torch
from torch import nn

from course_utils import ledger as module
from course_utils.ledger import LEAD_IN, MARGIN, ROUNDS, Ledger
from course_utils.predictions import Prediction

START = {"seconds": 1.0, "images": 10, "skill": 0.9}


class Clockwork:
    """Time that goes by only where a training step says so."""

    def __init__(self) -> None:
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
        )


@pytest.fixture
def world(monkeypatch):
    clockwork = Clockwork()
    monkeypatch.setattr(module, "perf_counter", lambda: clockwork.now)
    return clockwork


def test_a_faster_loop_that_learns_is_kept(world):
    ledger = world.ledger()
    rung = ledger.try_out("half the time", {"seconds": 0.5})
    assert rung.kept and rung.speed_up.median == pytest.approx(2.0)
    assert (rung.speed_up.n, rung.speed_up.unit, rung.speed_up.kind) == (ROUNDS, "1", "measured")
    assert ledger.best == START | {"seconds": 0.5}
    assert ledger.base.median == pytest.approx(10.0)


def test_the_speed_up_counts_images_and_not_steps(world):
    rung = world.ledger().try_out("large batch", {"images": 40, "seconds": 2.0})
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
    rung = ledger.try_out("a change", change)
    assert not rung.kept and why in rung.why
    assert ledger.best == START


def test_a_little_less_accuracy_is_within_the_margin(world):
    assert world.ledger().try_out("x", {"seconds": 0.5, "skill": 0.9 - MARGIN + 0.01}).kept


def test_a_slower_loop_is_not_trained_to_see_whether_it_learns(world):
    assert world.ledger().try_out("x", {"seconds": 3.0}).accuracy is None


def test_the_learner_can_decide(world):
    ledger = world.ledger()
    assert ledger.try_out("free", {"seconds": 1.0, "note": 1}, keep=True).kept
    assert not ledger.try_out("fast", {"seconds": 0.5}, keep=False).kept
    assert ledger.best == START | {"note": 1}


def test_two_loops_take_turns_and_each_begins_half_of_the_rounds(world):
    ledger = world.ledger(seconds=0.0625)
    ledger.compare(ledger.start, ledger.start | {"seconds": 0.03125})
    runs = [seconds for seconds, after in pairwise([*world.order, 0]) if seconds != after]
    assert len(runs) == 2 + 1 + ROUNDS  # calibration, then one change a round: neighbours join


def test_the_lead_in_is_not_timed(world):
    begun = []

    def training(parts):
        while True:
            world.now += 50.0 if len(begun) % 40 < LEAD_IN else 1.0
            begun.append(1)
            yield nn.Linear(1, 1), 1

    pace = module._Pace(training({}), torch.device("cpu"))
    begun.clear()
    pace._count = 40 - LEAD_IN
    assert pace.turn() == pytest.approx(1.0)


def test_a_busy_machine_does_not_move_the_ratio_of_neighbours(world):
    world.slow = {1: 3.0}
    rung = world.ledger(seconds=0.01).try_out("half", {"seconds": 0.005})
    assert rung.speed_up.median == pytest.approx(2.0, rel=0.35)


def test_a_change_that_fails_is_noted_in_one_line(world, capsys):
    ledger = world.ledger()
    rung = ledger.try_out("fails", {"error": NotImplementedError("not on this device\nmore")})
    assert (rung.kept, rung.speed_up) == (False, None)
    assert "not on this device" in rung.why and "\n" not in rung.why
    assert "does not run here" in capsys.readouterr().out
    assert ledger.best == START


def test_a_mistake_in_the_learners_code_is_not_swallowed(world):
    with pytest.raises(NameError):
        world.ledger().try_out("typo", {"error": NameError("name 'x' is not defined")})


def test_unless_measures_nothing(world):
    ledger = world.ledger()
    rung = ledger.try_out("TF32", {"seconds": 0.1}, unless="cpu has no TF32 units.")
    assert (rung.speed_up, rung.kept, rung.why) == (None, False, "cpu has no TF32 units.")
    assert world.order == []


def test_a_cell_that_runs_again_replaces_its_rung_in_place(world):
    ledger = world.ledger()
    ledger.try_out("a", {"seconds": 0.5})
    ledger.try_out("b", {"images": 20})
    again = ledger.try_out("a", {"seconds": 0.25})
    assert [rung.name for rung in ledger.rungs] == ["a", "b"]
    assert again.speed_up.median == pytest.approx(4.0)  # against the first loop, not against b
    assert ledger.best == START | {"seconds": 0.25, "images": 20}


def test_the_guess_is_kept_beside_the_measurement(world):
    prediction = Prediction("09.test", "×", guess=3.0)
    assert world.ledger().try_out("a", {"seconds": 0.5}, prediction).predicted == 3.0
    assert world.ledger().try_out("a", {"seconds": 0.5}, Prediction("09.none")).predicted is None


def test_the_whole_ladder_is_measured_at_once(world):
    ledger = world.ledger()
    ledger.try_out("a", {"seconds": 0.5})
    ledger.try_out("b", {"images": 30})
    assert ledger.whole().median == pytest.approx(6.0)


def test_loops_are_closed(world):
    ledger = world.ledger()
    ledger.try_out("a", {"seconds": 0.5})
    assert world.closed == 4  # two that took turns, two that learned


def test_the_report_card_is_a_picture_and_json_and_keeps_older_ones(world, tmp_path):
    ledger = world.ledger()
    ledger.try_out("a", {"seconds": 0.5})
    ledger.try_out("b", {}, unless="not here.")
    ledger.result("MFU", "12 %")
    ledger.result("a run", ledger.times("a run", [1.0, 2.0, 3.0]))
    picture, record = ledger.save(tmp_path / "new folder")
    assert picture.read_bytes().startswith(b"\x89PNG")
    content = json.loads(record.read_text(encoding="utf-8"))
    assert [rung["name"] for rung in content["rungs"]] == ["a", "b"]
    assert content["rungs"][0]["speed_up"]["median"] == pytest.approx(2.0)
    assert content["results"]["MFU"] == "12 %"
    assert content["results"]["a run"]["median"] == 2.0
    assert content["accuracy of the first loop"] == 0.9


def test_two_saves_within_a_second_keep_both(world, tmp_path):
    ledger = world.ledger()
    ledger.try_out("a", {"seconds": 0.5})
    first, second = ledger.save(tmp_path), ledger.save(tmp_path)
    assert len({*first, *second}) == 4 and all(path.exists() for path in (*first, *second))


def test_what_makes_no_sense_is_refused(world, tmp_path):
    with pytest.raises(ValueError, match="real clock"):
        Ledger(world.training, START, "sim", evaluate=len, epoch=1)
    with pytest.raises(ValueError, match="try a rung first"):
        world.ledger().save(tmp_path)


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
