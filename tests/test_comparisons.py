"""No sentence that compares two measured things is contradicted by a record of the course."""

import json
import re

import pytest
import yaml
from harness import ROOT

from course_lessons.shared.claims import Ratio

ENTRIES = yaml.safe_load((ROOT / "tests" / "comparisons.yml").read_text(encoding="utf-8"))
SLACK = 0.03
"""A time that changes by less than this share counts as the same, as in practices.md."""
IN_PROSE = {"NVIDIA H200": "H200", "AMD EPYC, 2 threads": "AMD server CPU"}
"""What a recorded machine is called in a sentence."""


def paragraphs(page):
    """Return the paragraphs, list items and table rows of a page or of a lesson's prose, each as one line."""
    text = (ROOT / page).read_text(encoding="utf-8")
    if page.endswith(".ipynb"):
        cells = json.loads(text)["cells"]
        prose = ["".join(c["source"]) for c in cells if c["cell_type"] == "markdown"]
        text = "\n\n".join(prose)
    parts = re.split(r"\n\s*\n|\n(?=[-|*] |\d+\. )", text)
    return [" ".join(part.split()) for part in parts]


def contradictions(entry):
    """Return what is wrong with an entry: sentence missing, no record for it, or one that contradicts it."""
    said = " ".join(entry["says"].split())
    around = [part for part in paragraphs(entry["page"]) if said in part]
    if not around:
        return [f"{entry['page']} no longer says: {said}"]
    ratio = Ratio(
        entry["experiment"],
        entry["worse"],
        entry["better"],
        entry.get("quantity", "time"),
        where=entry.get("where") or {},
    )
    real = [point for point in ratio.points() if point.kind == "recorded"]
    if not real:
        return [f"no record of {entry['experiment']} speaks to: {said}"]
    least = entry.get("by", 0 if "most" in entry else 1) - SLACK
    most = entry.get("most", float("inf")) + SLACK
    against = [point for point in real if not least <= point.value <= most]
    holds = {point.where for point in real} - {point.where for point in against}
    if against and not any(IN_PROSE[name] in around[0] for name in holds):
        return [f"{one.where}: {one.what}: {one.value:.2f}×, against: {said}" for one in against]
    return []


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry["says"][:40])
def test_the_records_bear_each_comparison_out(entry):
    assert contradictions(entry) == []


def test_a_sentence_that_a_record_contradicts_is_found(tmp_path, monkeypatch):
    monkeypatch.setattr("test_comparisons.ROOT", tmp_path)
    entry = {
        "page": "page.md",
        "says": "pinning on the spot is slower",
        "experiment": "host_to_device",
        "where": {"non_blocking": False, "megabytes": 64},
        "worse": {"source": "pinned on the spot"},
        "better": {"source": "pageable"},
    }
    page = tmp_path / "page.md"
    page.write_text("In general, pinning on the spot is slower.\n", encoding="utf-8")
    (point,) = contradictions(entry)
    assert point.startswith("NVIDIA H200") and "0.23×" in point
    page.write_text("Nothing of the kind.\n", encoding="utf-8")
    assert contradictions(entry) == ["page.md no longer says: pinning on the spot is slower"]


def test_a_sentence_need_not_hold_elsewhere_if_its_own_paragraph_names_the_machine(tmp_path, monkeypatch):
    monkeypatch.setattr("test_comparisons.ROOT", tmp_path)
    entry = {
        "page": "page.md",
        "says": "the CNN gains by bfloat16",
        "experiment": "cnn_step",
        "where": {"batch": 64, "channels_last": False},
        "worse": {"precision": "fp32"},
        "better": {"precision": "bf16"},
    }
    page = tmp_path / "page.md"
    page.write_text("- An AMD server CPU:\n- the CNN gains by bfloat16\n", encoding="utf-8")
    (point,) = contradictions(entry)
    assert point.startswith("NVIDIA H200") and "0.93×" in point
    page.write_text("On an AMD server CPU\nthe CNN gains by bfloat16.\n", encoding="utf-8")
    assert contradictions(entry) == []
