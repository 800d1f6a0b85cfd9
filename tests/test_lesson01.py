"""Lesson 01: its surprises hold, its pictures say what they show, its errors match every machine."""

from __future__ import annotations

import json
import re

import nbformat
import pytest
import torch
from harness import NOTEBOOKS, ROOT, code_cells

from course_lessons.lesson01 import drawings
from course_lessons.lesson01.drawings import peaks, race, roofline, two_processors
from course_lessons.shared import roofline as roofline_drawing
from course_utils import expect_error, measure, plots, predict, synchronize, todo
from course_utils.evidence import published_gpus, recorded
from course_utils.exercises import lesson
from course_utils.timing import Measurement

EX = lesson("01")
SIZES = [32, 64, 128]


NOTEBOOK = nbformat.read(NOTEBOOKS / "01_devices.ipynb", as_version=4)


def cell(*needed):
    sources = [cell.source for cell in code_cells(NOTEBOOK)]
    (source,) = [source for source in sources if all(text in source for text in needed)]
    return source


def fake(median, device="cpu", machine="a CPU", kind="measured"):
    return Measurement("x", median, median, median, 5, device, machine, "2.13", 2, "2026-11-21", kind)


def test_the_naive_clock_beats_the_cards_own_peak_and_the_cure_does_not(sim, figures, capsys):
    names = {"torch": torch, "device": sim, "drawings": drawings, "synchronize": synchronize}
    exec(cell('predict(\n    "01.clocks"'), {"predict": predict, "todo": todo}, names)
    capsys.readouterr()
    exec(cell("naive", "synchronize(device)"), names)
    said = capsys.readouterr().out
    assert "Right answer: naive is shorter" in said
    naive, honest, *again = map(float, re.findall(r"([\d.]+) TFLOP/s", said))
    t4 = next(gpu.fp32_tflops for gpu in published_gpus() if gpu.name == "NVIDIA T4")
    assert honest < t4 < naive / 10 and again == [naive, honest]
    assert said.startswith("modelled")
    ((fig, alt),) = figures
    assert "illustration" in fig.axes[0].get_title(loc="left") + fig.axes[0].get_title()
    assert "naive" in words(fig) and "naive" in alt


@pytest.mark.parametrize(
    "message",
    [
        "Torch not compiled with CUDA enabled",
        "Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU",
        "No CUDA GPUs are available",
        "CUDA error: invalid device ordinal\nGPU device may be out of range",
        "HIP error: invalid device ordinal",
        "Invalid device id",
    ],
)
def test_the_absent_device_is_recognised_on_every_machine(message):
    names: dict[str, str] = {}
    exec(cell("expect_error", "absent =").splitlines()[0], names)
    assert re.search(names["absent"], message)


def test_expect_error_takes_several_types(capsys):
    with expect_error((AssertionError, RuntimeError), match="no"):
        raise RuntimeError("no device")
    assert "RuntimeError: no device" in capsys.readouterr().out
    with (
        pytest.raises(AssertionError, match="AssertionError or RuntimeError, and did not"),
        expect_error((AssertionError, RuntimeError)),
    ):
        pass
    with pytest.raises(KeyError), expect_error((AssertionError, RuntimeError)):
        raise KeyError("another")


@pytest.fixture
def figures(monkeypatch):
    """Return the figures that drawings show, kept open, with their alternative texts."""
    shown = []
    for module in (drawings, roofline_drawing):
        monkeypatch.setattr(module, "present", lambda fig, alt: shown.append((fig, alt)))
    yield shown
    for fig, _ in shown:
        plots.plt.close(fig)


@pytest.fixture
def sim(simulated):
    return simulated.enable("T4")


def words(fig):
    texts = [text.get_text() for ax in fig.axes for text in ax.texts]
    legends = [*fig.legends, *filter(None, (ax.get_legend() for ax in fig.axes))]
    return " ".join(texts + [text.get_text() for legend in legends for text in legend.get_texts()])


CPU = [fake(1e-5), fake(1e-4), fake(1e-3)]
SIMULATED = [fake(2e-5, "sim:0", "Simulated NVIDIA T4", "modelled")] * 3
RECORDED = {n: [fake(9e9), fake(2e-6 * n, "cuda", "Some GPU", "recorded")] for n in SIZES}


@pytest.mark.parametrize(
    ("others", "records", "gain", "names", "not_named"),
    [
        pytest.param(
            {"sim:0": SIMULATED},
            {},
            [0.5, 5, 50],
            ["cpu (measured)", "Simulated NVIDIA T4 (modelled)"],
            ["T4 (measured)", "sim:0"],
            id="the learner's device is simulated",
        ),
        pytest.param(
            {"mps": [fake(2e-5, "mps")] * 3},
            {},
            [0.5, 5, 50],
            ["cpu (measured)", "mps (measured)"],
            ["modelled", "T4"],
            id="the learner's device is a real one",
        ),
        pytest.param(
            {},
            RECORDED,
            [1e-5 / 64e-6, 1e-4 / 128e-6, 1e-3 / 256e-6],
            ["cpu (measured)", "Some GPU (recorded)"],
            ["modelled"],
            id="a GPU was recorded",
        ),
        pytest.param(
            {},
            {},
            None,
            ["cpu (measured)", "NVIDIA T4 (modelled)"],
            [],
            id="there is no accelerator",
        ),
    ],
)
def test_the_race_names_each_device_and_divides_its_time_into_the_cpus(
    figures, monkeypatch, others, records, gain, names, not_named
):
    def look_up(experiment, size):
        assert experiment == "matmul"
        return records.get(size, [])

    monkeypatch.setattr(drawings, "recorded", look_up)
    race(SIZES, {"cpu": CPU, **others})
    ((fig, alt),) = figures
    assert all(name in words(fig) and name in alt for name in names)
    assert not any(name in words(fig) + alt for name in not_named)
    times = fig.axes[0].lines[1].get_ydata()
    assert all(times > 1e-6)
    expected = gain or [1e-5, 1e-4, 1e-3] / times
    assert list(fig.axes[1].lines[0].get_ydata()) == pytest.approx(expected)


def test_the_modelled_race_is_what_the_simulated_device_says(sim):
    sizes = [32, 256, 512]
    products = [torch.rand(2, n, n, device=sim) for n in sizes]
    times = [measure(lambda a=a, b=b: a @ b, device=sim) for a, b in products]
    assert [m.kind for m in times] == ["modelled"] * 3
    assert [m.median for m in times] == pytest.approx(drawings._modelled_race(sizes), rel=0.2)


def test_the_table_of_peaks_names_kinds_and_sources(capsys):
    peaks(2e11, 4e10)
    said = capsys.readouterr().out
    lines = said.splitlines()
    assert "0.2" in lines[1] and "40" in lines[1] and lines[1].endswith("measured")
    for gpu, line in zip(published_gpus(), lines[2:], strict=False):
        assert line.startswith(gpu.name) and line.endswith("published")
        assert gpu.source in said


def test_the_roofline_bends_where_both_limits_meet(figures):
    roofline(2e11, 4e10, {"addition": [(0.1, 3e9)], "product": [(50, 1e11)]})
    ((fig, alt),) = figures
    x, y = fig.axes[0].lines[0].get_data()
    assert x[1] == pytest.approx(5.0)
    assert list(y) == pytest.approx([2.0, 200.0, 200.0])
    assert "ridge: 5 FLOPs/byte" in words(fig) and "product" in alt
    assert "product (measured)" in words(fig)
    roofline(2e11, 4e10, {"product": [(50, 1e11)]}, "modelled")
    fig, alt = figures[-1]
    assert "measured" not in words(fig) + alt and "product (modelled)" in words(fig)


def test_the_picture_of_two_processors_is_labelled_an_illustration(figures):
    two_processors()
    ((fig, alt),) = figures
    assert "illustration" in fig.axes[1].get_title(loc="left") + fig.axes[1].get_title()
    assert "CPU" in alt and "GPU" in alt


@pytest.mark.parametrize(("first", "scale"), [(820e-6, "log"), (30e-6, "linear")])
def test_the_twenty_timings_are_dots_and_the_first_stands_apart(figures, first, scale):
    times = [first, *(26e-6 + 1e-7 * i for i in range(19))]
    drawings.timings(times, torch.device("cpu"))
    ((fig, alt),) = figures
    (ax,) = fig.axes
    assert ax.get_yscale() == scale and "measured on cpu" in ax.get_title(loc="left") + ax.get_title()
    *_, others, alone = ax.lines
    assert len(others.get_ydata()) == 19 and list(alone.get_ydata()) == pytest.approx([1e6 * first])
    assert alone.get_color() != others.get_color()
    assert f"the first took {1e6 * first:.3g} µs" in alt and "median of 26.9 µs" in alt


def test_trips_and_product_are_two_bars_for_each_card(figures):
    drawings.trips_and_product({"NVIDIA T4": (3.15e-3, 2.12e-3), "NVIDIA H200 SXM": (0.79e-3, 0.26e-3)})
    ((fig, alt),) = figures
    bars = [bar.get_width() for bar in fig.axes[0].patches]
    assert bars == pytest.approx([3.15, 2.12, 0.79, 0.26])
    assert fig.axes[0].get_xscale() == "linear" and "published" in fig.axes[0].get_xlabel()
    assert "NVIDIA T4 3.15 and 2.12 ms" in alt


@pytest.mark.parametrize(("kind", "hatch"), [("modelled", "///"), ("measured", None)])
def test_a_modelled_bar_looks_unlike_a_measured_one(figures, kind, hatch):
    def job(cpu, alone, whole):
        return fake(cpu), *(fake(time, "sim:0", "a GPU", kind) for time in (alone, whole))

    drawings.two_jobs(product=job(0.1, 0.005, 0.015), sum=job(0.04, 0.003, 0.16))
    ((fig, alt),) = figures
    product, total = fig.axes
    assert [bar.get_width() for bar in product.patches] == pytest.approx([100, 5, 10])
    assert [bar.get_width() for bar in total.patches] == pytest.approx([40, 3, 157])
    assert [bar.get_hatch() for bar in product.patches] == [None, hatch, hatch]
    labels = [label.get_text() for label in product.get_yticklabels()]
    assert labels == ["cpu (measured)", f"sim:0 ({kind})"] and all(label in alt for label in labels)


def test_on_a_cpu_the_trips_are_nothing_however_the_times_vary(figures):
    drawings.two_jobs(product=(fake(0.1), fake(0.11), fake(0.1)), sum=(fake(0.1),) * 3)
    assert [bar.get_width() for bar in figures[0][0].axes[0].patches] == pytest.approx([100, 110, 0])


@pytest.mark.parametrize(
    ("slug", "answer", "inputs"),
    [
        ("speedup", lambda *_: 7.0, "7 for cpu_seconds=6, device_seconds=2"),
        ("intensity", lambda *_: 7.0, "7 for n=1024, k=1024, m=1024, bytes_per_number=4"),
        (
            "least_seconds",
            lambda *_: (7.0, "memory"),
            "for flops=2e+12, bytes_moved=1e+09, peak_flops=1e+13",
        ),
        (
            "least_seconds",
            lambda flops, moved, peak, bandwidth: (max(flops / peak, moved / bandwidth), "memory"),
            "for flops=2e+12, bytes_moved=1e+09, peak_flops=1e+13",
        ),
    ],
)
def test_a_refusal_names_the_inputs(slug, answer, inputs):
    result = getattr(EX, slug).result(answer)
    assert result.outcome == "not_yet"
    assert inputs in dict(result.details)["Seen"], result.details


def test_the_lessons_own_line_finds_a_device():
    texts = [cell.source for cell in NOTEBOOK.cells if cell.cell_type == "markdown"]
    (line,) = re.findall(r"```python\n(.*?)```", "\n\n".join(texts), re.DOTALL)
    names = {"torch": torch}
    exec(line, names)
    assert torch.ones(1).to(names["device"]).device.type == names["device"].type


# What the text quotes of the records.


def on_the_h200(experiment, **parameters):
    found = recorded(experiment, **parameters)
    (m,) = [m for m in found if m.kind == "recorded" and m.machine == "NVIDIA H200"]
    return m.median


def test_the_flat_part_reaches_further_on_a_gpu():
    sizes = (1, 2**10, 2**20)
    gpu = [on_the_h200("add", numbers=n) for n in sizes]
    assert min(gpu) > 6e-6 and max(gpu) < 9e-6
    cpu = [next(m.median for m in recorded("add", numbers=n) if m.device == "cpu") for n in sizes]
    assert cpu == pytest.approx([0.94e-6, 1.05e-6, 53e-6], rel=0.01)


def test_the_ridges_of_the_three_cards_are_as_the_text_says():
    single = [1e3 * gpu.fp32_tflops / gpu.bandwidth_gb_s for gpu in published_gpus()]
    half = [1e3 * gpu.fp16_tensor_tflops / gpu.bandwidth_gb_s for gpu in published_gpus()]
    assert [round(x) for x in (min(single), max(single))] == [10, 25]
    assert min(half) > 150 and max(half) < 210
    t4 = published_gpus()[0]
    assert (t4.name, round(t4.bandwidth_gb_s / 12), t4.fp32_tflops) == ("NVIDIA T4", 27, 8.1)


def test_a_cache_is_faster_than_the_memory_in_the_records_too():
    rate = {n: 12 * n / on_the_h200("add", numbers=n) for n in (2**22, 2**25)}
    peak = next(g.bandwidth_gb_s for g in published_gpus() if g.name == "NVIDIA H200 SXM") * 1e9
    assert rate[2**22] == pytest.approx(6.1e12, abs=5e10) and rate[2**22] > peak == 4.8e12
    assert rate[2**25] == pytest.approx(4.2e12, abs=5e10)


def test_by_its_peaks_a_t4_wins_the_product_with_the_trips_and_loses_the_sum():
    t4 = next(gpu for gpu in published_gpus() if gpu.name == "NVIDIA T4")
    trips, product = 3 * 4 * 2048**2 / 16e9, 2 * 2048**3 / (t4.fp32_tflops * 1e12)
    cpu = next(m.median for m in recorded("matmul", size=2048) if m.device == "cpu")
    assert trips > product and trips + product == pytest.approx(5.3e-3, abs=5e-5)
    assert cpu == pytest.approx(98e-3, abs=5e-4)
    moved = 3 * 4 * 2**25
    (cpu,) = [m.median for m in recorded("add", numbers=2**25) if m.device == "cpu"]
    assert moved == pytest.approx(403e6, rel=1e-3)
    assert (moved / 16e9, cpu) == pytest.approx((25e-3, 7.4e-3), rel=0.01)


def test_the_arrays_of_the_lesson_are_larger_than_any_cards_cache():
    profiles = json.loads((ROOT / "simgpu/profiles.json").read_text(encoding="utf-8"))
    largest = max(card["figures"]["l2"]["value"] for card in profiles["profiles"].values())
    assert cell("four_times.reveal").startswith("n = 10_240") and 3 * largest < 4 * 10_240**2
    assert "2**26" in cell("drawings.roofline") and 2 * largest < 4 * 2**26
