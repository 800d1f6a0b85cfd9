"""No sentence that compares two measured things is contradicted by a record of the course."""

import json

import pytest
import yaml
from harness import ROOT

from course_lessons.shared.claims import Ratio

ENTRIES = yaml.safe_load((ROOT / "tests" / "comparisons.yml").read_text(encoding="utf-8"))
SLACK = 0.03
"""A time that changes by less than this share counts as the same, as in practices.md."""


def selection(raw):
    """Return what a side of an entry selects; a list means any of its values."""
    return {name: tuple(v) if isinstance(v, list) else v for name, v in (raw or {}).items()}


def paragraphs(page):
    """Return the paragraphs of a page, or the prose cells of a lesson, each as one line."""
    text = (ROOT / page).read_text(encoding="utf-8")
    if page.endswith(".ipynb"):
        cells = json.loads(text)["cells"]
        parts = ["".join(c["source"]) for c in cells if c["cell_type"] == "markdown"]
    else:
        parts = text.split("\n\n")
    return [" ".join(part.split()) for part in parts]


def contradictions(entry):
    """Return what speaks against an entry: its sentence is gone, no record speaks to it, or one says otherwise."""
    said = " ".join(entry["says"].split())
    around = [part for part in paragraphs(entry["page"]) if said in part]
    if not around:
        return [f"{entry['page']} no longer says: {said}"]
    ratio = Ratio(
        entry["experiment"],
        selection(entry["worse"]),
        selection(entry["better"]),
        entry.get("quantity", "time"),
        where=selection(entry.get("where")),
    )
    real = [found for found in ratio.found() if found.kind == "recorded"]
    if not real:
        return [f"no record of {entry['experiment']} speaks to: {said}"]
    least = entry.get("by", 1) - SLACK
    against = [found for found in real if found.value < least]
    holds = {found.where for found in real} - {found.where for found in against}
    if against and not any(name in around[0] for name in holds):
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
    (found,) = contradictions(entry)
    assert found.startswith("NVIDIA H200") and "0.23×" in found
    page.write_text("Nothing of the kind.\n", encoding="utf-8")
    assert contradictions(entry) == ["page.md no longer says: pinning on the spot is slower"]
