"""Records: what is read, what is refused and in which words, and the cards that show them."""

import json
from datetime import date, timedelta

import pytest

from course_utils import evidence, plots
from course_utils.evidence import RecordError, recorded
from course_utils.number_format import amount
from course_utils.timing import Measurement
from tools.records import checks, files
from tools.records.experiments import REGISTRY

MACHINE = {
    "device": "Tesla T4",
    "memory": 15_000_000_000,
    "driver": "580.1",
    "torch": "2.11.0",
    "cuda": "12.8",
    "os": "Linux x86_64",
    "cpu": "A CPU",
    "cores": 2,
}
REMOVE = object()


def result(**changes):
    fields = {
        "experiment": "matmul",
        "parameters": {"size": 64},
        "quantity": "time",
        "unit": "s",
        "median": 2.0,
        "q1": 1.0,
        "q3": 3.0,
        "n": 9,
        "device": "cuda",
        "threads": 2,
        "date": "2026-01-02",
        "kind": "recorded",
    }
    return {name: v for name, v in (fields | changes).items() if v is not REMOVE}


def published(**changes):
    figures = {"q1": None, "q3": None, "n": None, "threads": REMOVE, "device": "NVIDIA T4"}
    source = {"title": "A datasheet", "url": "https://example.org", "date": "2019"}
    return result(**{**figures, "kind": "published", "source": source, **changes})


def write(folder, *results, name="machine_t4.json", **changes):
    machine = None if name == "published.json" else MACHINE
    fields = {"schema": 2, "machine": machine, "date": "2026-01-02", "results": list(results)}
    content = {key: v for key, v in (fields | changes).items() if v is not REMOVE}
    path = folder / name
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


# --- what is found ----------------------------------------------------------------------------


def test_records_are_found_by_their_parameters_oldest_first(tmp_path):
    write(
        tmp_path,
        result(date="2026-01-03", device="cpu"),
        result(),
        result(parameters={"size": 128}),
        result(quantity="peak memory", unit="B"),
    )
    found = recorded("matmul", folder=tmp_path, size=64)
    assert [m.date for m in found] == ["2026-01-02", "2026-01-03"]
    assert [(m.device, m.machine) for m in found] == [("cuda", "Tesla T4"), ("cpu", "A CPU")]
    assert {(m.kind, m.torch, m.label) for m in found} == {("recorded", "2.11.0", "matmul size 64")}
    (memory,) = recorded("matmul", "peak memory", folder=tmp_path)
    assert (memory.unit, memory.quantity, memory.parameters) == ("B", "peak memory", {"size": 64})
    assert recorded("matmul", folder=tmp_path, size=65) == []
    assert recorded("copy", folder=tmp_path) == []
    write(tmp_path, result(experiment="copy"))  # a changed file is read anew
    assert len(recorded("copy", folder=tmp_path)) == 1


def test_all_kinds_are_found_and_each_says_which_it_is(tmp_path):
    write(tmp_path, published(), name="published.json")
    write(tmp_path, result(kind="modelled", device="sim:0"), name="modelled_t4.json")
    write(tmp_path, result())
    (tmp_path / "schema.json").write_text("{}", encoding="utf-8")
    found = recorded("matmul", folder=tmp_path)
    assert [m.kind for m in found] == ["recorded", "modelled", "published"]
    assert (found[2].machine, found[2].q1, found[2].n) == ("NVIDIA T4", None, None)
    assert found[2].source == "A datasheet, 2019, https://example.org"
    assert str(found[2]).endswith("2 s, published in A datasheet, 2019, https://example.org")


def test_a_measurement_survives_the_file(tmp_path):
    m = Measurement(
        *("matmul size 64", 0.1 + 0.2, 0.3, 1 / 3, 9, "cuda", "Tesla T4", "2.11.0", 2),
        *("2026-01-02", "measured", "s", "time", "", "matmul", {"size": 64}),
    )
    write(tmp_path, files.as_result(m))
    (found,) = recorded("matmul", folder=tmp_path)
    assert (found.median, found.q1, found.q3) == (m.median, m.q1, m.q3)
    assert found.as_dict() == m.as_dict() | {"kind": "recorded"}


# --- what is refused --------------------------------------------------------------------------

FUTURE = (date.today() + timedelta(days=2)).isoformat()
WHERE = "machine_t4.json, result 2 (matmul size 64, time): "
REFUSED = {
    "not a number": ({"median": "2"}, "median: '2' is not of type 'number'"),
    "a field too few": ({"q1": REMOVE}, "'q1' is a required property"),
    "a field too many": ({"mean": 2.0}, "('mean' was unexpected)"),
    "a list among the parameters": ({"parameters": {"size": [64]}}, "parameters.size: [64]"),
    "an unknown unit": ({"unit": "ms"}, "unit: 'ms' is not one of ['s', 'B', "),
    "a time in bytes": ({"unit": "B"}, "unit: 's' was expected"),
    "a day that is none": ({"date": "2026-02-30"}, "date: '2026-02-30' is not a 'date'"),
    "published by no one": ({"kind": "published"}, "'source' is a required property"),
    "a kind of another file": ({"kind": "modelled"}, "its kind is modelled, and a file of this"),
    "the future": ({"date": FUTURE}, f"{FUTURE} is in the future"),
    "a median above its quartiles": ({"median": 4.0}, "the quartiles do not enclose the median"),
    "no time at all": ({"q1": 0.0}, "q1 0 s is not above zero"),
    "faster than the chip": (
        {"parameters": {"size": 4096}, "median": 0.01, "q1": 0.01, "q3": 0.02},
        "13.7 TFLOP/s is above the peak of 8.1 TFLOP/s (NVIDIA T4 Tensor Core GPU datasheet, 2019)",
    ),
    "faster than the memory": (
        {
            "experiment": "copy",
            "parameters": {"numbers": 2**25},
            "median": 5e-4,
            "q1": 4e-4,
            "q3": 1,
        },
        "537 GB/s is above the peak of 320 GB/s",
    ),
    "faster than the cores": (
        {"parameters": {"size": 4096}, "median": 0.1, "q1": 0.1, "device": "cpu"},
        "1.37 TFLOP/s is above the peak of 768 GFLOP/s (2 cores × 6 GHz × 64 FLOPs a cycle)",
    ),
}


@pytest.mark.parametrize(("changes", "says"), REFUSED.values(), ids=REFUSED)
def test_a_wrong_result_is_refused_by_file_place_and_reason(tmp_path, changes, says):
    path = write(tmp_path, result(parameters={"size": 2}), result(**changes))
    with pytest.raises(RecordError) as caught:
        checks.checked(path)
    where = WHERE
    if "parameters" in changes:
        name = changes.get("experiment", "matmul")
        where = f"machine_t4.json, result 2 ({evidence.label(name, changes['parameters'])}, time): "
    assert str(caught.value).startswith(where)
    assert says in str(caught.value)
    assert str(caught.value).count("\n") == 0 and str(caught.value).endswith(".")


SHARE = {"quantity": "test accuracy", "unit": "1", "device": "cpu"}


@pytest.mark.parametrize("figures", [(0.9, 0.97, 1.1), (-0.1, 0.5, 0.6)])
def test_an_accuracy_outside_0_to_1_is_refused(tmp_path, figures):
    good = result(**SHARE, q1=0.0, median=0.5, q3=1.0)
    bad = dict(good, parameters={"size": 1}, **dict(zip(("q1", "median", "q3"), figures, strict=True)))
    assert checks.problems(write(tmp_path, good)) == []
    (problem,) = checks.problems(write(tmp_path, good, bad))
    assert "is no share: it lies outside 0 to 1" in problem
    above_one = dict(bad, quantity="speed-up", q1=1.0, median=3.0, q3=4.0)
    assert checks.problems(write(tmp_path, good, above_one)) == []
    slower_than_nothing = dict(above_one, q1=0.0)
    assert "not above zero" in checks.problems(write(tmp_path, good, slower_than_nothing))[0]
    no_difference = dict(above_one, quantity="difference", q1=-1.0, median=0.0)
    assert checks.problems(write(tmp_path, good, no_difference)) == []


@pytest.mark.parametrize("word", ["NaN", "1e999"])
def test_what_is_no_number_is_refused(tmp_path, word):
    path = write(tmp_path, result(q3=77.25))
    path.write_text(path.read_text(encoding="utf-8").replace("77.25", word), encoding="utf-8")
    with pytest.raises(RecordError, match=r"machine_t4\.json.*(not whole JSON|not a finite)"):
        checks.checked(path)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"{", "not whole JSON"),
        (b"[]", "does not say its schema"),
        (b'{"schema": 1}', "says schema 1, and this copy of the course reads schema 2"),
        (b'{"schema": 2}', "is a required property"),
        (b"\xff\xfe\xfa", "not text"),
        (None, "cannot be read: "),
    ],
)
def test_a_file_that_is_no_record_is_refused_by_its_name(tmp_path, data, says):
    path = tmp_path / "machine_x.json"
    if data is not None:
        path.write_bytes(data)
    with pytest.raises(RecordError, match=r"^machine_x\.json") as caught:
        checks.checked(path)
    assert says in str(caught.value)
    if data and data.isascii():
        assert "anew" in str(caught.value)


@pytest.mark.parametrize(
    ("name", "changes", "says"),
    [
        ("machine_t4.json", {"date": FUTURE}, "is in the future"),
        ("machine_t4.json", {"machine": None}, "recorded results, and no machine"),
        ("machine_t4.json", {"machine": MACHINE | {"cores": 0}}, "machine.cores: 0 is less than"),
        ("machine_t4.json", {"machine": MACHINE | {"colour": "red"}}, "'colour' was unexpected"),
        ("published.json", {"machine": MACHINE}, "published results, and a machine"),
        ("mine.json", {}, "its name says no kind. Name it machine_"),
    ],
)
def test_a_wrong_file_is_refused(tmp_path, name, changes, says):
    entry = published() if name == "published.json" else result()
    problem, *_ = checks.problems(write(tmp_path, entry, name=name, **changes))
    assert problem.startswith(name) and says in problem


def test_the_same_thing_twice_is_refused(tmp_path):
    again = result(median=2.5, parameters={"size": 64})
    (problem,) = checks.problems(write(tmp_path, result(), again))
    assert "result 2 (matmul size 64, time): result 1 is of the same thing" in problem
    others = [result(device="cpu"), result(quantity="peak memory", unit="B")]
    assert checks.problems(write(tmp_path, result(), *others)) == []
    two_sources = [published(), published(source={"title": "Another datasheet"})]
    assert checks.problems(write(tmp_path, *two_sources, name="published.json")) == []


def test_every_problem_of_a_file_is_listed_and_the_first_is_raised(tmp_path):
    path = write(tmp_path, result(n=0), result(unit="ms"), result(parameters={"size": 2}))
    found = checks.problems(path)
    assert [problem.split(" (")[0] for problem in found] == [
        "machine_t4.json, result 1",
        "machine_t4.json, result 2",
    ]
    with pytest.raises(RecordError, match=r"1 more: `record --check machine_t4\.json`"):
        checks.checked(path)


def test_what_is_near_the_limit_is_believed(tmp_path):
    """A rate near its peak, a small copy that a cache served, a day of another time zone."""
    flops = {"experiment": "matmul", "parameters": {"size": 4096}, "q1": 0.016}
    at_peak = result(**flops, median=2 * 4096**3 / 8.1e12 / 1.04)
    above = result(**flops, median=2 * 4096**3 / 8.1e12 / 1.06)
    day = (date.today() + timedelta(days=1)).isoformat()
    small = {"experiment": "copy", "parameters": {"numbers": 2**20}}
    cached = result(**small, q1=1e-6, median=2e-6, date=day)
    assert checks.problems(write(tmp_path, at_peak, cached, date=day)) == []
    assert "above the peak" in checks.problems(write(tmp_path, above))[0]


@pytest.mark.parametrize(
    ("machine", "device", "matrix_units", "flops"),
    [
        (MACHINE | {"device": "NVIDIA A100-SXM4-80GB"}, "cuda", True, 312e12),
        (MACHINE | {"device": "NVIDIA A100-SXM4-80GB"}, "cuda", False, 19.5e12),
        (MACHINE | {"device": "Simulated NVIDIA T4"}, "sim:0", True, 65e12),
        (None, "NVIDIA H200 SXM", False, 67e12),
        (MACHINE | {"device": "NVIDIA T4000"}, "cuda", True, checks.ANY_CHIP.flops),
        (MACHINE | {"cores": 4}, "cpu", True, 4 * 6e9 * 2048),
    ],
)
def test_a_chip_has_its_own_ceiling(machine, device, matrix_units, flops):
    most = checks.ceiling(machine, device, matrix_units)
    assert most.flops == pytest.approx(flops) and most.source


# --- what is shipped --------------------------------------------------------------------------


SHIPPED = [path for path in evidence.FOLDER.glob("*.json") if evidence.kind_of_file(path)]


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.name)
def test_a_shipped_file_is_in_order(path):
    assert checks.problems(path) == []
    content = evidence.load(path)
    assert content["results"]
    if content["machine"]:
        assert path.name == files.file_name(content["machine"])
        for m in evidence.read_records(path):
            assert m.parameters in REGISTRY[m.experiment].sweep


# --- cards ------------------------------------------------------------------------------------


@pytest.fixture
def mine():
    figures = (0.0123, 0.012, 0.013, 9, "cpu", "My CPU", "2.13.0", 2, "2026-11-21")
    return Measurement("yours", *figures)


@pytest.fixture
def pictures(monkeypatch):
    """Collect figures and their alternative texts instead of showing them."""
    shown = []
    monkeypatch.setattr(plots, "present", lambda fig, alt: shown.append((fig, alt)))
    yield shown
    for fig, _ in shown:
        plots.plt.close(fig)


def test_a_card_sets_the_learners_number_first_and_names_every_kind(mine, tmp_path, pictures, capsys):
    write(tmp_path, published(median=0.5), name="published.json")
    write(tmp_path, result(kind="modelled"), name="modelled_t4.json", machine=SIMULATED)
    write(tmp_path, result())
    evidence.card(mine, experiment="matmul", size=64, folder=tmp_path)
    head, *lines = capsys.readouterr().out.splitlines()
    rows, (*runs, likely, source) = lines[:4], lines[4:]
    assert "My CPU (cpu): torch 2.13.0, 2026-11-21." in runs
    assert head.split()[:2] == ["What", "Median"]
    kinds = ["measured", "recorded", "modelled", "published"]
    assert [next(kind for kind in kinds if f" {kind} " in row) for row in rows] == kinds
    for part in ("yours", "12.3 ms", "12 ms – 13 ms", "My CPU"):
        assert part in rows[0]
    assert "Tesla T4" in rows[1] and "1 s – 3 s" in rows[1]
    assert "–" not in rows[3] and "500 ms" in rows[3]
    assert "s, likely" in rows[2] and likely.startswith("Likely: ") and "on the T4," in likely
    assert source == "Published: A datasheet, 2019, https://example.org."
    ((fig, alt),) = pictures
    assert "yours 12.3 ms (measured); Tesla T4 2 s (recorded)" in alt
    (axes,) = fig.axes
    assert axes.get_xscale() == "log"
    labels = [label.get_text() for label in axes.get_yticklabels()]
    assert labels[0] == "yours (measured)" and labels[3] == "NVIDIA T4 (published)"
    assert any(label.get_text().endswith("ms") for label in axes.get_xticklabels())


SIMULATED = MACHINE | {"device": "Simulated NVIDIA T4"}


def test_with_nothing_to_compare_there_is_no_picture(mine, tmp_path, pictures, capsys):
    evidence.card(mine)
    evidence.card(mine, mine)
    evidence.card(mine, experiment="matmul", size=64, folder=tmp_path)
    assert pictures == []
    assert "Nobody has recorded matmul size 64 yet.\n" in capsys.readouterr().out


def test_a_card_does_not_repeat_what_was_just_modelled(mine, tmp_path, pictures, capsys):
    write(tmp_path, result(kind="modelled"), name="modelled_t4.json", machine=SIMULATED)
    own = Measurement(**{**mine.as_dict(), "kind": "modelled", "machine": "Simulated NVIDIA T4"})
    evidence.card(own, experiment="matmul", size=64, folder=tmp_path)
    assert capsys.readouterr().out.count("modelled") == 1
    evidence.card(mine, experiment="matmul", size=64, folder=tmp_path)
    assert capsys.readouterr().out.count("modelled") == 1 and len(pictures) == 1


def test_a_refused_file_does_not_stop_the_lesson(mine, tmp_path, pictures, capsys):
    write(tmp_path, result(q1=REMOVE))
    evidence.card(mine, experiment="matmul", folder=tmp_path)
    shown = capsys.readouterr().out
    assert "12.3 ms" in shown
    assert "Nothing is shown beside it: machine_t4.json is not a file of records" in shown
    assert "`record --check machine_t4.json` says what is wrong" in shown


def test_a_row_names_the_parameters_in_which_records_differ(tmp_path, pictures):
    write(
        tmp_path,
        result(**SHARE, parameters={"size": 64, "dtype": "float32"}, q1=0.96, median=0.971, q3=0.98),
        result(**SHARE, parameters={"size": 64, "dtype": "bfloat16"}, q1=0.96, median=0.97, q3=0.98),
    )
    evidence.card(experiment="matmul", quantity="test accuracy", folder=tmp_path)
    ((fig, alt),) = pictures
    assert "A CPU, float32 97.1 % (recorded); A CPU, bfloat16 97 % (recorded)" in alt
    assert fig.axes[0].get_xlim()[0] > 0.9


def test_memory_has_binary_marks(tmp_path, pictures):
    sizes = {"quantity": "peak memory", "unit": "B", "n": 1}
    for high in (3e9, 9e12):
        write(
            tmp_path,
            result(**sizes, q1=2**30, median=2**30, q3=2**30),
            result(**sizes, q1=high, median=high, q3=high, device="cuda:1"),
        )
        evidence.card(experiment="matmul", quantity="peak memory", folder=tmp_path)
        marks = [tick for tick in pictures[-1][0].axes[0].get_xticks() if tick]
        assert len(marks) >= 2 and all(tick % 2**20 == 0 for tick in marks)


@pytest.mark.parametrize(
    ("value", "unit", "quantity", "text"),
    [
        (0.0123, "s", "time", "12.3 ms"),
        (3 * 2**20, "B", "peak memory", "3 MiB"),
        (512, "B", "", "512 B"),
        (4.0, "1", "speed-up", "4×"),
        (16384, "1", "cores", "16,384"),
        (108000, "s", "time", "30 h"),
        (0.9731, "1", "test accuracy", "97.3 %"),
        (12345.6, "samples/s", "throughput", "12,346 samples/s"),
        (8.1e12, "FLOP/s", "", "8.1 TFLOP/s"),
        (3.2e11, "B/s", "", "320 GB/s"),
        (5.0, "FLOP/s", "", "5 FLOP/s"),
    ],
)
def test_amounts_have_a_fitting_unit(value, unit, quantity, text):
    assert amount(value, unit, quantity) == text
