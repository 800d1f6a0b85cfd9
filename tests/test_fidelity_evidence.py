"""The report on measurements that others published: all of the sample is understood."""

import math
import re
from pathlib import Path
from statistics import median

import pytest

from simgpu import latency
from tools.fidelity import hold, read
from tools.fidelity.hardware import profile_of
from tools.fidelity.interpret import READERS, interpret
from tools.fidelity.model import Found
from tools.fidelity.report import LONG, NEAR, groups
from tools.fidelity.rows import held_out
from tools.fidelity.steps import compiled, lambda_labs, several

EVIDENCE = Path(__file__).parents[1] / "tools" / "fidelity" / "evidence"


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
    def place(row):  # of the first that fits
        fits = (re.match(w, row.workload) and re.search(p, row.params) for w, p, _ in READERS)
        return next((i for i, fit in enumerate(fits) if fit), None)

    met = set(map(place, [*points, *operators[:100]]))
    for i, (_, _, reader) in enumerate(READERS):
        if reader in (compiled, several, lambda_labs) or reader.__name__ == "own":
            continue  # refused; of no stated licence; what the course's `record` writes
        assert i in met, reader.__name__


def test_single_operators_and_transfers_among_the_points_are_modelled(points):
    single = [row for row in points if not interpret(row).kind.startswith("network")]
    found = [hold(row) for row in single[::20]]
    assert len(found) > 50
    assert all(isinstance(each, Found) for each in found)


# Reached when this was written, on rows that nothing was fitted on: T4 0.86 and 0.85 within a quarter,
# A100s (of 40 GB in the table) 0.95 and 0.92. A gate stands at two thirds of that.
GATES = {
    ("T4", "0.1 ms and more"): (0.57, 0.13),
    ("T4", "below 0.1 ms"): (0.57, 0.15),
    ("A100-40GB", "0.1 ms and more"): (0.63, 0.06),
    ("A100-40GB", "below 0.1 ms"): (0.61, 0.12),
}
"""For a card and a size: the least share of rows within 25 %, the largest median error."""


@pytest.mark.slow
def test_most_operators_take_nearly_as_long_as_was_measured(operators):
    found: dict[tuple[str, str], list[float]] = {key: [] for key in GATES}
    for row in operators:
        each = hold(row)
        size = "0.1 ms and more" if each.measured >= LONG else "below 0.1 ms"
        if (each.profile, size) in found:
            found[each.profile, size].append(each.ratio)
    for key, (near, error) in GATES.items():
        ratios = found[key]
        off = [abs(ratio - 1) for ratio in ratios]
        assert len(ratios) > 100
        assert 0.9 < median(ratios) < 1.1, key
        assert median(off) < error, key
        assert sum(x <= NEAR for x in off) > near * len(off), key


@pytest.mark.slow
@pytest.mark.parametrize("workload", ["ResNet50 CIFAR10 epoch", "resnet50v1.5 training"])
def test_a_resnet_whose_channels_stand_second_trains_on_an_a100_nearly_as_long(points, workload):
    rows = [r for r in points if r.workload == workload and "A100" in r.hardware]
    near = [hold(row).ratio for row in rows if "tf32" in row.dtype and isinstance(hold(row), Found)]
    assert near  # reached: 0.79 and 0.83; without the turning round of images 0.73 and 0.76
    assert all(abs(ratio - 1) <= NEAR for ratio in near)


def test_a_model_that_is_half_as_fast_again_does_not_pass(operators, monkeypatch):
    right = latency.seconds
    monkeypatch.setattr(latency, "seconds", lambda work, profile: 1.5 * right(work, profile))
    with pytest.raises(AssertionError):
        test_most_operators_take_nearly_as_long_as_was_measured(operators)
