"""How far the simulated GPU is from real ones: shown beside each modelled time, and on a page."""

import json

import pytest
import torch
from harness import ROOT, notebook

from course_utils import evidence, measure, plots, show
from course_utils.course import load_course
from course_utils.predictions import predict
from course_utils.timing import Measurement
from simgpu import profiles
from tools.authoring import fidelity, site
from tools.fidelity import compare_row, read

COURSE = load_course()


@pytest.fixture
def sim(two_devices):
    return torch.device("sim:0")


def modelled(machine="Simulated NVIDIA T4", unit="s", **more):
    figures = (3e-3, 3e-3, 3e-3, 5, "sim:0", machine, "2.13.0", 2, "2026-11-21", "modelled", unit)
    return Measurement("mine", *figures, **more)


def test_a_modelled_time_stands_in_a_range_wherever_it_is_shown(sim, monkeypatch, capsys):
    a, layers = torch.rand(64, 64, device=sim), torch.nn.Linear(64, 64).to(sim)
    one, step = measure(lambda: a @ a, device=sim), measure(lambda: layers(a).sum(), device=sim)
    for m, work in ((one, "operator"), (step, "network")):
        low, high = m.interval
        assert low < m.median < high and high < 3 * low
        assert (m.likely.work, m.likely.card) == (work, "T4") and m.likely.n >= fidelity.ENOUGH
        assert f"(likely {evidence.amount(low)} to {evidence.amount(high)})" in str(m)
        evidence.card(m)
        said = capsys.readouterr().out
        assert f"{evidence.amount(low)} – {evidence.amount(high)}, likely" in said
        assert f"of {m.likely.n:,}" in said and f"{work}s timed on the T4," in said
    drawn = []
    monkeypatch.setattr(plots, "present", lambda fig, alt: drawn.append(fig))
    plots.dots([one, step], ["one", "step"])
    bars = [c for c in drawn[0].axes[0].containers if c.has_xerr]
    assert len(bars) == 2 and "likely range" in drawn[0].axes[0].get_xlabel()
    plots.plt.close(drawn[0])
    slow = predict("99.t", 1.01e6 * step.interval[0], unit="µs")
    slow.reveal(step)
    assert "Inside the range." in capsys.readouterr().out


def test_the_range_is_the_cards_own_where_enough_is_known_and_else_that_of_all():
    assert profiles.spread("Simulated NVIDIA T4") == profiles.spread("T4")
    everyone = profiles.spread("all")
    for machine in ("Simulated NVIDIA L4", "L4", "a card from tomorrow", ""):
        assert profiles.spread(machine) == everyone and everyone.card == "all"
    for machine in [*profiles.names(), "all"]:
        for single in (False, True):
            low, high, n, *_ = profiles.spread(machine, single)
            assert 0.3 < low <= 1 <= high < 3 and n >= fidelity.ENOUGH, "it holds the time itself"


def test_what_is_no_modelled_time_keeps_its_quartiles():
    assert modelled(unit="B").likely is None and modelled(unit="B").interval == (3e-3, 3e-3)
    measured = Measurement(**{**modelled().as_dict(), "kind": "measured", "q3": 4e-3})
    assert measured.likely is None and measured.interval == (3e-3, 4e-3)
    time, rate = modelled(), modelled(unit="samples/s")
    assert rate.interval[0] == pytest.approx(9e-6 / time.interval[1]), "the slower, the fewer"


def test_a_recorded_product_stands_in_the_range_of_operators_and_a_step_in_that_of_networks():
    (file,) = (ROOT / "course_lessons" / "recorded").glob("modelled_nvidia_t4.json")
    times = [m for m in evidence.read_records(file) if m.unit == "s"]
    found = {(m.experiment, m.likely.work) for m in times}
    assert {("matmul", "operator"), ("cnn_step", "network")} <= found
    assert ("matmul", "network") not in found and ("cnn_step", "operator") not in found


# --- the page -----------------------------------------------------------------------------------


def test_the_page_the_picture_and_the_ranges_follow_from_the_table():
    assert [file.path for file in fidelity.GENERATED if file.is_stale(ROOT)] == []
    stored = json.loads(fidelity.SPREAD.read_text(encoding="utf-8"))
    assert stored["cards"] == fidelity.spread(fidelity.read_pairs()), fidelity.COMMAND


def test_another_table_makes_another_page(monkeypatch):
    slower = [p._replace(modelled=2 * p.modelled) for p in fidelity.read_pairs()]
    before = fidelity.page()
    monkeypatch.setattr(fidelity, "read_pairs", lambda *path: slower)
    assert fidelity.page() != before and fidelity.spread(slower)["all"]["network"]["high"] < 1


def test_the_table_is_of_this_model():
    known = {}
    for p in fidelity.read_pairs():
        known.setdefault((*p[:3], f"{p.measured:.4g}"), []).append(p.modelled)
    for row in read(fidelity.EVIDENCE / "operators.csv.gz")[::75]:
        f = compare_row(row)
        listed = known[f.profile, f.meaning.kind, f.quantity, f"{f.measured:.4g}"]
        near = [value for value in listed if value == pytest.approx(f.modelled, rel=2e-3)]
        assert near, f"the model has changed: {fidelity.COMMAND}"


def test_our_own_gpu_is_on_the_page_and_in_no_range(tmp_path):
    ours = fidelity.read_pairs(fidelity.OURS)
    fidelity.table.write(fidelity.RECORD, tmp_path / "points.csv")
    rows = [row for row in read(tmp_path / "points.csv") if row.workload.startswith("call:")]
    listed = [p[3:] for p in ours]
    for f in map(compare_row, rows[::4]):
        assert pytest.approx((f.measured, f.modelled), rel=2e-3) in listed, fidelity.COMMAND
    at = fidelity.page().partition("no part in it\n")[2].partition("*Furthest*")[0]
    assert {f"| `{p.kind}` | " for p in ours} <= {line[: line.find(" | ") + 3] for line in at.splitlines()}
    assert not {p[3:] for p in ours} & {p[3:] for p in fidelity.read_pairs()}


def test_the_page_says_where_the_model_is_wrong_and_nothing_worse_is_left_out():
    text = fidelity.page()
    wrong = text.partition("still wrong")[2].partition("And what")[0]
    assert wrong.count("- **") > 0
    table = text.partition("<details>")[2]
    for line in table.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 4 and cells[3].endswith("%") and cells[3] != "Within 25 %":
            few, off = int(cells[1]) < 5, float(cells[3].rstrip("%")) < 100 * fidelity.WRONG
            assert few or (f"**{cells[0]}**" in wrong) == off, line


# --- the way to it ------------------------------------------------------------------------------


def test_whatever_says_modelled_leads_to_the_page(sim, monkeypatch):
    shown = []
    monkeypatch.setattr("course_utils.show.show", shown.append)
    monkeypatch.setattr("course_utils.predictions.show", shown.append)
    evidence.card(modelled())
    show.show_table(("a",), [("b",)], ["modelled"])
    predict("99.u", 1, unit="ms").reveal(modelled())
    leads = f'href="{COURSE.page(fidelity.PAGE)}"'
    assert [bundle.html.count(leads) for bundle in shown] == [1, 1, 1]
    assert (ROOT / fidelity.PAGE).is_file()
    evidence.card(Measurement(**{**modelled().as_dict(), "kind": "measured"}))
    predict("99.v", 1, unit="ms").reveal(2, kind="measured")
    assert not any("fidelity.md" in bundle.html for bundle in shown[3:])


def test_on_the_site_the_link_stays_on_the_site():
    nb = notebook("show()")
    data = {"text/html": show.real_gpus_link()}
    nb.cells[0].outputs = [site.nbformat.v4.new_output("display_data", data)]
    page = site.lesson_page(COURSE, nb, "01_devices.ipynb", [])
    (found,) = [cell for cell in page.cells if cell.get("outputs")]
    assert 'href="handbook/fidelity.html"' in found.outputs[0].data["text/html"]
    assert fidelity.PAGE in site.handbook_pages(ROOT)
