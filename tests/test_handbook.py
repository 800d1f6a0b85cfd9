"""The handbook's page by machine: dated, linked, and of one mind with the code."""

import inspect
import re

import torch
from harness import ROOT

import simgpu
from course_utils.devices import ORDER
from course_utils.doctor import wheel_supports
from course_utils.this_machine import OLDEST_TORCH
from simgpu import profiles

PAGE = (ROOT / "handbook" / "machines.md").read_text(encoding="utf-8")
MONTHS = "January February March April May June July August September October November December"
DAY = re.compile(rf"\b({'|'.join(MONTHS.split())}) 20\d\d\b")


def tables(text):
    """Return each table's caption (the paragraph above it) and its rows as lists of cells."""
    found, caption = [], ""
    for block in text.split("\n\n"):
        lines = [line for line in block.splitlines() if line.startswith("|")]
        if lines:
            rows = [re.split(r"(?<!\\)\|", line)[1:-1] for line in lines if "---" not in line]
            found.append((caption, [[cell.strip() for cell in row] for row in rows]))
        else:
            caption = block
    return found


def undated(text):
    return [
        row
        for caption, rows in tables(text)
        for row in rows[1:]
        if not DAY.search(caption) and not DAY.search(" ".join(row))
    ]


def plain_http(text):
    return re.findall(r"\]\((?!https://|\.\./|#)[^)]*", text)


def generations():
    """Return the row for each compute capability in the table of NVIDIA's generations."""
    (rows,) = (rows for _, rows in tables(PAGE) if rows[0][0] == "generation")
    return {
        (int(major), int(minor)): dict(zip(rows[0], row, strict=True))
        for row in rows[1:]
        for major, minor in re.findall(r"(\d+)\.(\d)", row[1])
    }


def test_each_row_of_a_table_has_a_month_or_stands_under_one():
    assert len(tables(PAGE)) >= 7
    assert not undated(PAGE)
    assert undated("Old.\n\n| a | b |\n|---|---|\n| 1 | May 2026 |\n| 2 | – |") == [["2", "–"]]


def test_links_that_leave_are_https():
    assert PAGE.count("](https://") > 40
    assert not plain_http(PAGE)
    assert plain_http("[a](http://a.b) [c](d.md)") == ["](http://a.b", "](d.md"]


def test_what_a_generation_can_do_is_what_the_simulated_cards_and_the_doctor_say():
    rows = generations()
    for card in map(profiles.load, profiles.names()):
        row = rows[card.capability]
        half = "bfloat16" if card.bf16_flops else "float16"
        assert row["train in"].startswith(half), card.name
        assert (row["matrix units for"] == "float16") == (card.tf32_flops is None), card.name
    carried = re.search(r"the wheel itself \(`([^`]+)`\)", PAGE)[1].split()
    for (major, minor), row in rows.items():
        assert (row["wheels of 2.15"] == "yes") == wheel_supports(f"sm_{major}{minor}", carried), row
    if torch.__version__.startswith("2.15.") and torch.version.cuda:
        assert torch._C._cuda_getArchFlags().split() == carried


def test_what_the_page_says_of_the_course_is_so():
    assert f"PyTorch {'.'.join(map(str, OLDEST_TORCH))} or newer" in PAGE
    (mine,) = (rows for _, rows in tables(PAGE) if rows[0][0] == "you have")
    assert {kind for row in mine[1:] for kind in re.findall(r"`(\w+)`", row[1])} == set(ORDER)
    assert "CUDA or ROCm, XPU, MPS, the simulated device and the CPU, in this order" in PAGE
    assert ORDER == ("cuda", "xpu", "mps", "sim", "cpu")
    assert "holds the memory of a T4" in PAGE
    assert inspect.signature(simgpu.enable).parameters["profile"].default == "T4"
