"""The best practices: each says what it brings, by the records, and the page follows them."""

import json
import shutil
from dataclasses import replace

import pytest
from harness import ROOT

from course_utils import evidence
from course_utils.course import load_course
from tools.authoring import practices
from tools.authoring.practices import GROUPS, Practice, summary, verdict

COURSE = load_course()
EVERY = [practice for group in GROUPS.values() for practice in group]
PAGE = (ROOT / "handbook" / "practices.md").read_text(encoding="utf-8")
NAMED = {practice.name: practice for practice in EVERY}


def test_the_page_holds_twenty_to_thirty_practices_and_the_documents_ten_items():
    assert 20 <= len(EVERY) <= 30
    for practice in EVERY:
        assert f"| {practice.name} | {practice.when} |" in PAGE
    steps = [line for line in PAGE.splitlines() if line[:4] in {f"| {n}." for n in range(1, 6)}]
    assert len(steps) == 5
    for title in ("PyTorch GPU加速训练核心技术指南", "PyTorch学习指南"):
        assert title in PAGE


@pytest.mark.parametrize("name", ["a larger batch", "gradient checkpointing", "accumulation over 4 parts"])
def test_no_verdict_on_a_method_comes_from_a_card_that_idles(name):
    """The one recorded card did four times the batch in the same time: it shows launches, not the method."""
    assert not any(f.accelerator and f.kind != "published" for f in NAMED[name].points)


@pytest.mark.parametrize("name", NAMED)
def test_each_has_a_number_with_its_kind_and_source_or_says_in_words_that_there_is_none(name):
    practice = NAMED[name]
    said = summary(practice)
    if not practice.numbers:
        assert any(word in said for word in ("Nothing", "No figure", "no figure", "bytes"))
    for f in practice.points:
        assert f"*{f.kind}*" in said
        assert ("](https://" in said) if f.kind == "published" else (f.date in said)
    assert bool(practice.numbers) == bool(practice.points)
    assert not any(raw in said for raw in ("not used", "ladder,", "loop step"))


def test_a_record_that_changes_changes_the_page(tmp_path, monkeypatch):
    fused = NAMED["`fused=True` for the optimiser"]
    assert "GPU: depends, 0.95× to 1.63×" in summary(fused)
    shutil.copytree(ROOT / "course_lessons" / "recorded", tmp_path / "recorded")
    path = tmp_path / "recorded" / "published.json"
    content = json.loads(path.read_text(encoding="utf-8"))
    for entry in content["results"]:
        if entry["experiment"] == "fused_optimizer" and entry["parameters"]["used"]:
            entry["median"] *= 3
    path.write_text(json.dumps(content), encoding="utf-8")
    monkeypatch.setattr(evidence, "FOLDER", tmp_path / "recorded")
    assert "GPU: depends, 0.95× to 3.08×" in summary(fused)
    assert practices.practices(COURSE) not in PAGE


def test_a_recorded_gpu_takes_the_sentence_away_that_there_is_none(monkeypatch):
    assert practices.NO_GPU not in practices.practices(COURSE)
    one = NAMED["CUDA graphs"].points[0]
    seen = [replace(one, kind="published", accelerator=True)]
    monkeypatch.setattr(Practice, "points", property(lambda self: seen))
    assert practices.practices(COURSE).startswith(practices.NO_GPU)


def test_modelled_numbers_are_shown_for_want_of_others(tmp_path, monkeypatch):
    cut = NAMED["`.pin_memory()` on a batch, then copy"]
    assert {f.kind for f in cut.points} == {"recorded"}
    shutil.copytree(ROOT / "course_lessons" / "recorded", tmp_path / "recorded")
    (tmp_path / "recorded" / "machine_nvidia_h200.json").unlink()
    monkeypatch.setattr(evidence, "FOLDER", tmp_path / "recorded")
    assert {f.kind for f in cut.points} == {"modelled"}


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ((0.98, 1.02), "nothing, 0.98× to 1.02×"),
        ((1.2, 1.2), "gains, 1.20×"),
        ((0.5, 0.9), "costs, 0.50× to 0.90×"),
        ((0.5, 12.3), "depends, 0.50× to 12×"),
        ((1.0, 1.4), "depends, 1.00× to 1.40×"),
        ((0.01, 0.01), "costs, 1/100×"),
    ],
)
def test_the_word_follows_from_the_numbers(values, said):
    one = NAMED["CUDA graphs"].points[0]
    assert verdict([replace(one, value=value) for value in values]) == f"{said} (published)"
    assert verdict([replace(one, value=0.95, low=0.9, high=1.01)]).startswith("nothing, 0.95×")
