"""The report on measurements that others published: all of the sample is understood."""

import math
import re
from pathlib import Path

import pytest

from simgpu.fidelity import hold, read
from simgpu.fidelity.hardware import profile_of
from simgpu.fidelity.interpret import READERS, interpret
from simgpu.fidelity.model import Found
from simgpu.fidelity.report import groups
from simgpu.fidelity.rows import held_out
from simgpu.fidelity.steps import compiled, lambda_labs, several

EVIDENCE = Path(__file__).parent / "evidence"


@pytest.fixture(scope="module")
def operators():
    return read(EVIDENCE / "operators.csv.gz")


@pytest.fixture(scope="module")
def points():
    return read(EVIDENCE / "points.csv.gz")


def test_nothing_was_fitted_on_the_operators(operators):
    assert len(operators) == 3000 and all(map(held_out, operators))


def test_operators_are_modelled_every_one(operators):
    found = [hold(row) for row in operators[::10]]
    assert all(isinstance(each, Found) for each in found)
    assert all(0 < each.modelled < math.inf and each.meaning.host for each in found)
    seen = {(group.kind, group.size) for group in groups(found)}
    kinds = {"product", "convolution", "elementwise", "softmax", "norm"}
    assert {kind for kind, _ in seen} == kinds and len(seen) > len(kinds)


def test_every_point_names_its_source_and_is_understood(points):
    for row in points:
        assert row.source
        interpret(row)
        profile_of(row.hardware)


def test_every_reader_of_rows_has_some_to_read(points, operators):
    rows = [*points, *operators[:100]]
    for number, (workload, params, reader) in enumerate(READERS):
        if reader in (compiled, several, lambda_labs) or workload == "call:":
            continue  # refused; of no stated licence; ours
        mine = [
            row
            for row in rows
            if re.match(workload, row.workload) and re.search(params, row.params)
        ]
        before = READERS[:number]
        free = [
            row
            for row in mine
            if not any(re.match(w, row.workload) and re.search(p, row.params) for w, p, _ in before)
        ]
        assert free, reader.__name__


def test_single_operators_and_transfers_among_the_points_are_modelled(points):
    single = [row for row in points if not interpret(row).kind.startswith("network")]
    found = [hold(row) for row in single[::20]]
    assert len(found) > 50
    assert all(isinstance(each, Found) for each in found)
