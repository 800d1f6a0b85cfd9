"""The claims: none is lost, each verdict follows from the records, the page is fresh; their experiments."""

import json
import sys
from dataclasses import replace

import pytest
import torch
from harness import ROOT

from course_lessons.shared.claims import CLAIMS, WORDS, Ratio, Value, card, claim, weigh
from course_utils import evidence
from tools.authoring import claims as writer
from tools.authoring import practices
from tools.fidelity.convolutional import small_cnn, wide_cnn
from tools.records import networks
from tools.records.experiments import REGISTRY, LeftOut, Point, Unsuitable, run_points
from tools.records.synthetic_images import IMAGES, SyntheticImages

CPU = torch.device("cpu")
BY_ID = {c.id: c for c in CLAIMS}
NUMBERED = [
    "gpu-speed",
    "gpu-amp",
    "cifar-ratio",
    "cifar-cpu-rate",
    "cifar-gpu-rate",
    "cifar-hours",
    "days-hours",
    "resnet-ratio",
    "resnet-cpu-rate",
    "resnet-gpu-rate",
    "bert-ratio",
    "amp-speed",
    "amp-pyramid",
    "amp-resnet",
    "amp-bert",
    "amp-memory",
    "amp-memory-resnet",
    "amp-memory-bert",
    "loader",
    "bandwidth",
    "cores-4090",
    "gpu-cores",
    "cpu-cores",
    "accumulation",
    "kaggle-hours",
    "paperspace-hours",
]
"""One for every number in the five documents that claims something."""
FASTER = ["matmul-gpu", "pinned", "non-blocking", "cudnn-benchmark"]
"""They say "faster", without a figure."""
PAGES = ("handbook/claims.md", "handbook/claims_numbers.md")
GPU = {"device": "accelerator"}
GAIN = Ratio("resnet50_step", {"precision": "fp32"}, {"precision": "fp16"})
AMP = replace(BY_ID["amp-speed"], numbers=(GAIN,), low=1.5, high=2)
PRINTED = {"kind": "published", "source": {"title": "A page"}, "device": "NVIDIA T4"}


def result(experiment, median, **fields):
    """Return a complete result, as in a file of records."""
    times = (None, None, None) if fields.get("kind") == "published" else (median, median, 5)
    return {
        **{"experiment": experiment, "parameters": {}, "quantity": "time", "unit": "s"},
        **{"median": median, **dict(zip(("q1", "q3", "n"), times, strict=True)), "device": "cpu"},
        **{"threads": 2, "date": "2026-11-21", "kind": "recorded", **fields},
    }


@pytest.fixture
def records(tmp_path, monkeypatch):
    """Replace the course's folder of records by an empty one; return it and a function that adds a file."""
    gpus = (evidence.FOLDER / "published_gpus.json").read_text(encoding="utf-8")
    (tmp_path / "published_gpus.json").write_text(gpus, encoding="utf-8")
    monkeypatch.setattr(evidence, "FOLDER", tmp_path)
    about = {
        **{"device": "NVIDIA H200", "memory": 10**11, "driver": "1", "torch": "2.13.0"},
        **{"cuda": "13", "os": "Linux", "cpu": "A CPU", "cores": 8},
    }

    def put(name, *results):
        machine = None if name == "published" else about
        content = {"schema": 2, "machine": machine, "date": "2026-11-21", "results": results}
        (tmp_path / f"{name}.json").write_text(json.dumps(content), encoding="utf-8")

    return put


def gains(*values, device="cuda", **fields):
    """Return pairs of results whose second is faster by a known factor."""
    return [
        result("resnet50_step", time, device=device, parameters=parameters, **fields)
        for batch, value in enumerate(values, 1)
        for precision, time in (("fp32", 1.0), ("fp16", 1 / value))
        for parameters in [{"batch": batch, "precision": precision}]
    ]


def modelled(*values):
    return gains(*values, device="sim:0", kind="modelled")


# --- none is lost -------------------------------------------------------------------------------


def test_every_number_of_the_documents_has_its_claim():
    assert {*BY_ID} == {*NUMBERED, *FASTER}
    assert len(CLAIMS) == len({*BY_ID}) == len(NUMBERED) + len(FASTER)
    words = ["数小时", "“小时”", "几千个核心"]
    for name in NUMBERED:
        quote = BY_ID[name].quote
        assert any(map(str.isdigit, quote)) or any(word in quote for word in words)


@pytest.mark.parametrize("one", CLAIMS, ids=lambda c: c.id)
def test_a_claim_says_where_it_stands_and_what_would_show_it(one):
    """Where the verdict fails, new records contradict the sentence: reword it, then set ``word``."""
    assert one.text and one.needs and one.document and one.section and one.short and one.group
    assert one.low is None or one.high is None or one.low <= one.high
    assert one.experiments or not one.gpu, "a claim about a GPU needs an experiment"
    for number in one.numbers:
        quantities = (number.quantity, "throughput", "speed-up")
        known = any(evidence.recorded(number.experiment, quantity) for quantity in quantities)
        assert number.experiment in REGISTRY or known, number
    assert one.word in WORDS and weigh(one) == one.word, one.sentence


def test_ranges_are_those_of_the_documents():
    assert (BY_ID["gpu-speed"].low, BY_ID["gpu-speed"].high) == (10, 100)
    assert BY_ID["cifar-gpu-rate"].low == pytest.approx(100 * 50_000 / 2.5)
    assert BY_ID["cifar-cpu-rate"].low == pytest.approx(100 * 50_000 / 25)
    assert BY_ID["resnet-cpu-rate"].low == pytest.approx(100 / 8.7)
    assert BY_ID["resnet-gpu-rate"].low == pytest.approx(100 / 0.9)
    assert BY_ID["resnet-ratio"].claimed == "9.7×"
    assert BY_ID["amp-memory-bert"].claimed == "40 to 60 %"
    assert BY_ID["amp-resnet"].low == 60 / 40
    assert BY_ID["amp-bert"].low == 3 / 1.5
    assert BY_ID["bert-ratio"].low == 3 * 60 / 18


# --- weighing -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "word"),
    [
        ((), "Open"),
        ((1.6, 1.9), "Holds"),
        ((1.4,), "Holds"),  # within the tolerance
        ((1.6, 3.0), "Depends"),
        ((0.9, 3.0), "Not seen"),
    ],
)
def test_words(values, word, records):
    records("machine_a", *gains(*values))
    assert weigh(AMP) == word


def test_what_is_modelled_or_only_related_decides_nothing(records):
    records("modelled_a", *modelled(1.7))
    assert weigh(AMP) == "Open" and AMP.points[0].kind == "modelled"
    records("machine_a", *gains(1.7))
    assert weigh(replace(AMP, numbers=(replace(GAIN, weighed=False),))) == "Open"


def test_only_records_that_differ_in_one_thing_are_compared(records):
    both = gains(2.0)
    both[1]["parameters"]["batch"] = 64
    records("machine_a", *both)
    assert not AMP.points
    records("machine_a", gains(2.0)[0])
    records("machine_b", gains(2.0)[1])  # the same hardware, so one machine
    assert [f.value for f in AMP.points] == [2.0]
    records("machine_b", {**gains(2.0)[1], "device": "cpu"})
    assert not AMP.points


def test_a_ratio_has_the_spread_of_both_sides(records):
    slow, fast = gains(2.0)
    records("machine_a", {**slow, "q1": 0.9, "q3": 1.1}, {**fast, "q1": 0.4, "q3": 0.6})
    (point,) = AMP.points
    assert (point.low, point.value, point.high) == pytest.approx((0.9 / 0.6, 2.0, 1.1 / 0.4))


def test_the_faster_side_of_a_rate_is_the_larger_one(records):
    rates = gains(2.0, **PRINTED, quantity="throughput", unit="samples/s")
    records("published", *[{**rate, "median": 1 / rate["median"]} for rate in rates])
    (point,) = AMP.points
    assert (point.value, point.kind, point.source) == (2.0, "published", "A page")


def test_a_cpu_and_a_gpu_are_compared_across_machines_and_both_are_named(records):
    ratio = Ratio("cifar_step", {"device": "cpu"}, GPU)
    times = [("cpu", 64, 0.2), ("cuda", 64, 0.01), ("cuda", 1024, 0.02)]
    records(
        "machine_a",
        *[result("cifar_step", t, device=d, parameters={"batch": b}) for d, b, t in times],
    )
    (point,) = ratio.points()
    assert point.value == 20 and point.accelerator
    assert point.where == "NVIDIA H200 against A CPU, 2 threads"


def test_a_time_and_a_rate_meet_where_it_is_said_of_how_many_the_time_is(records):
    one = {"parameters": {"batch": 1}}
    rate = result("resnet50_inference", 40, **one, **PRINTED, quantity="throughput", unit="samples/s")
    records("machine_a", result("resnet50_inference", 10.0, **one))
    records("published", rate)
    apart = Ratio("resnet50_inference", {"device": "cpu"}, GPU)
    assert not list(apart.points())
    (point,) = replace(apart, items=100).points()
    assert point.value == 4 and point.where == "NVIDIA T4 against A CPU, 2 threads"


def test_a_value_counts_the_items_of_a_call_or_is_scaled(records):
    records("machine_a", result("cifar_step", 0.5, parameters={"batch": 64}))
    (point,) = Value("cifar_step", items="batch", where={"device": "cpu"}).points()
    assert point.value == 128
    assert [f.value for f in Value("cifar_step", items=100).points()] == [200]
    assert not list(Value("cifar_step", items="batch", where=GPU).points())
    records("published", result("free_gpu_time", 7200, **PRINTED))
    assert [f.value for f in Value("free_gpu_time", scale=1 / 3600).points()] == [2]


def test_memory_saved_is_written_as_a_share(records):
    one = BY_ID["amp-memory"]
    for half, word in ((6e8, "Holds"), (7e8, "Not seen")):  # 30 % is not near 40 %
        memory = gains(1.0, quantity="peak memory", unit="B")
        for entry, size in zip(memory, (1e9, half), strict=True):
            entry.update(median=size, q1=size, q3=size)
        records("machine_a", *memory)
        assert weigh(one) == word
        assert f"{round(100 - half / 1e7)} %" in card(one).text.splitlines()[3]


# --- what was published -------------------------------------------------------------------------


def test_every_published_number_has_a_source_and_is_used():
    published = evidence.read_records(evidence.FOLDER / "published.json")
    assert all(m.source for m in published)
    habits = [habit for group in practices.GROUPS.values() for habit in group]
    points = [f for one in (*CLAIMS, *habits) for f in one.points if f.kind == "published"]
    used = {source for f in points for source in f.source.split("; ")}
    assert {m.source for m in published} == used


def test_published_bandwidths_are_those_of_the_datasheets():
    printed = {m.machine: m.median for m in evidence.recorded("memory_bandwidth", "bandwidth", memory="GPU")}
    for gpu in evidence.published_gpus():
        assert printed[gpu.name] == gpu.bandwidth_gb_s * 1e9


def test_a_ratio_that_was_printed_as_such_is_taken_as_it_is():
    ratio = Ratio("bert_large_step", {"precision": "fp32"}, {"precision": "fp16"})
    assert 4.48 in [f.value for f in ratio.points() if f.kind == "published"]
    assert not [f for f in replace(ratio, before={"precision": "none"}).points() if f.source]


# --- page and card ------------------------------------------------------------------------------


def renewed(root):
    stale = [file for file in writer.GENERATED if file.is_stale(root)]
    for file in stale:
        file.write(root)
    return [file.path for file in stale]


@pytest.mark.slow
def test_the_page_and_the_chart_are_fresh():
    assert [file.path for file in writer.GENERATED if file.is_stale(ROOT)] == []


@pytest.mark.slow
def test_a_changed_record_makes_both_stale_and_renewing_mends_them(records, tmp_path):
    records("machine_a", *gains(1.7))
    assert renewed(tmp_path) == [], "a course without the folders has none to keep"
    (tmp_path / "handbook").mkdir()
    (tmp_path / "images").mkdir()
    assert renewed(tmp_path) == [*PAGES, "images/claims.svg"]
    assert renewed(tmp_path) == []
    assert "1.7×" in (tmp_path / PAGES[1]).read_text(encoding="utf-8")
    records("machine_a", *gains(3.0))
    assert renewed(tmp_path) == [*PAGES, "images/claims.svg"]
    assert all("3×" in (tmp_path / page).read_text(encoding="utf-8") for page in PAGES)


@pytest.mark.slow
def test_every_claim_has_a_verdict_and_a_link_to_its_numbers_and_says_what_is_not_measured():
    page, numbers = writer.page(), writer.numbers()
    for one in CLAIMS:
        link = f"| [{one.text}](claims_numbers.md#claim-{one.id}) | **{one.word}** | {one.sentence}"
        assert link in page and f'<a id="claim-{one.id}"></a>\n\n### {one.text}\n' in numbers
        assert one.quote.replace("|", " · ") in numbers
        said = f"- *Not measured yet: needs a GPU.* `{one.command}`" in numbers
        assert said or not one.lacks_gpu
    for text, bars in ((page, 4), (numbers, 6)):
        shown = [line for line in text.splitlines() if line.startswith("| ")]
        assert {line.replace("\\|", "").count("|") for line in shown} == {bars}


def test_where_nothing_decides_the_row_says_what_is_modelled(records):
    records("modelled_a", *modelled(1.5, 1.7, 1.9))
    assert "| **Open** |" in writer.page([AMP]) and "Modelled: 1.5 to 1.9×." in writer.page([AMP])
    records("machine_a", *gains(2.0))
    assert "Modelled" not in writer.page([AMP]).partition("|---")[2]


def test_modelled_numbers_of_one_place_share_a_row(records):
    records("modelled_a", *modelled(1.5, 1.7, 1.9))
    records("machine_a", *gains(2.0, 2.5))
    rows = [line for line in writer.numbers([AMP]).splitlines() if line.startswith("| ")][1:]
    assert [row.split(" | ")[:2] for row in rows] == [
        ["| 2×", "recorded"],
        ["| 2.5×", "recorded"],
        ["| 1.5 to 1.9×", "modelled"],
    ]
    assert "3 cases" in rows[2] and "3 cases" not in rows[0] + rows[1]


@pytest.mark.parametrize(
    ("devices", "lacks_gpu", "word"),
    [
        (["cpu"], True, "Open"),
        (["cuda"], False, "Open"),  # what is lacking is a CPU
        (["cuda", "cpu"], False, "Holds"),
    ],
)
def test_what_a_gpu_measured_is_no_longer_asked_for(devices, lacks_gpu, word, records):
    times = {"cuda": 0.1, "cpu": 1.0}
    size = {"size": 5000}
    records("machine_a", *[result("matmul", times[d], device=d, parameters=size) for d in devices])
    one = BY_ID["matmul-gpu"]
    assert (one.lacks_gpu, weigh(one)) == (lacks_gpu, word)


def test_a_claim_shows_as_a_card(capsys):
    claim("amp-speed")
    said = capsys.readouterr().out
    one = BY_ID["amp-speed"]
    assert one.text in said and f"{one.word}. " in said and one.document in said
    assert "published" in said and "NVIDIA H100 SXM" in said
    bundle = card(one)
    assert "<table>" in bundle.html and "NVIDIA H100 SXM" in bundle.html
    with pytest.raises(ValueError, match=r"no claim 'amp'; choose from .*amp-speed"):
        claim("amp")


def test_a_verdict_says_how_many_numbers_fit_and_without_numbers_has_no_holes(records):
    for one in CLAIMS:
        assert "{" not in one.sentence and one.sentence.strip()
        assert isinstance(card(one).text, str)
    assert BY_ID["cifar-cpu-rate"].sentence == "No number yet."
    records("machine_a", *gains(1.6, 1.9, 3.0))
    one = replace(AMP, verdict="{inside} of {count}: {range}")
    assert one.sentence == "2 of 3: 1.6 to 3×"


# --- the experiments behind them ----------------------------------------------------------------

PREPARED = {
    "cifar_step": {"batch": 2},
    "mlp_step": {"batch": 4, "precision": "fp32"},
    "cnn_step": {"batch": 2, "precision": "bf16", "channels_last": True},
    "loader_epoch": {"transform": "light", "workers": 0},
}


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.slow] * (name == "loader_epoch")) for name in PREPARED],
)
def test_a_training_step_trains(name):
    """The parameters change: an optimiser that was forgotten would be as fast as one likes."""
    made = []
    real = torch.optim.Optimizer.__init__

    def kept(self, params, defaults):
        real(self, params, defaults)
        made.append(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.optim.Optimizer, "__init__", kept)
        work = REGISTRY[name].prepare(CPU, **PREPARED[name])
    weights = [p for group in made[0].param_groups for p in group["params"]]
    before = [p.detach().clone() for p in weights]
    work()
    assert any(not torch.equal(p, old) for p, old in zip(weights, before, strict=True))


def test_accumulation_is_exact_only_for_equal_batches():
    run = REGISTRY["accumulation"].prepare
    errors = {
        case: max(run(CPU, case=case)["error as a fraction of the gradient"].values)
        for case in ("equal batches", "smaller last batch", "batch norm")
    }
    assert errors["equal batches"] < 1e-5
    assert errors["smaller last batch"] > 0.05 and errors["batch norm"] > 0.01


@pytest.mark.parametrize("work", ["light", "heavy"])
def test_the_loader_gives_images_of_one_shape(work):
    images = SyntheticImages(work)
    assert len(images) == IMAGES
    image, label = images[IMAGES - 1]
    assert image.shape == (3, 32, 32) and 0 <= label < 10
    assert not torch.equal(image, images[IMAGES - 1][0]), "the transform is random"


@pytest.mark.parametrize(
    ("name", "parameters", "reason"),
    [
        ("mlp_step", {"batch": 64, "precision": "tf32"}, "no TF32 units"),
        ("mlp_step", {"batch": 64, "precision": "fp16"}, "a CPU computes float16 too slowly"),
        ("bert_large_step", {"batch": 1, "precision": "fp32"}, "needs an accelerator"),
        ("cudnn_benchmark", {"batch": 8, "benchmark": True}, "cuDNN is for NVIDIA"),
        ("loader_epoch", {"transform": "light", "workers": 4096}, "4096 workers need 4096 cores"),
        (
            "host_to_device",
            {"megabytes": 1, "source": "pinned", "non_blocking": True},
            "pinned memory is for CUDA",
        ),
    ],
)
def test_what_says_nothing_on_a_cpu_is_left_out_with_a_reason(name, parameters, reason):
    with pytest.raises(Unsuitable, match=reason):
        REGISTRY[name].prepare(CPU, **parameters)


def test_a_package_that_does_not_load_is_left_out_and_nothing_fails(tmp_path, monkeypatch):
    broken = 'raise RuntimeError("operator torchvision::nms does not exist")'
    (tmp_path / "torchvision").mkdir()
    (tmp_path / "torchvision" / "__init__.py").write_text(broken, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    for name in [name for name in sys.modules if name.split(".")[0] == "torchvision"]:
        monkeypatch.delitem(sys.modules, name)
    point = Point(REGISTRY["resnet50_step"], {"batch": 4, "precision": "fp32"}, CPU)
    ((_, left_out),) = run_points([point])
    assert isinstance(left_out, LeftOut) and not left_out.failed
    assert "torchvision is installed but does not load" in left_out.reason
    assert "nms does not exist" in left_out.reason


def test_tf32_is_put_back_also_after_an_error():
    def state():
        return torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32

    before = state()
    with networks.float32_precision(tf32=True):
        assert state() == ("high", True)
        with networks.float32_precision(tf32=False):
            assert state() == ("highest", False)
        assert state() == ("high", True)
    with pytest.raises(KeyError), networks.float32_precision(tf32=not before[1]):
        raise KeyError
    assert state() == before


def test_the_small_network_costs_what_its_description_says():
    from torch.utils.flop_counter import FlopCounterMode

    for model, said in ((small_cnn(), 74e6), (wide_cnn(), 1.1e9)):
        with FlopCounterMode(display=False) as counter:
            model(torch.randn(4, 3, 32, 32, requires_grad=True)).sum().backward()
        assert counter.get_total_flops() / 4 == pytest.approx(said, rel=0.06)
