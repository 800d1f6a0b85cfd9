"""The frame, as a lesson uses it: devices, timing, errors, bars, data, plots, progress."""

import base64
import collections
import contextlib
import gc
import io
import json
import os
import subprocess
import sys
import threading
import time
import weakref
from types import SimpleNamespace

import IPython
import pytest
import torch
from harness import ROOT, code_cells, execute, notebook

import course_utils
import simgpu
from course_utils import data, devices, plots, progress_file, session, this_machine, timing
from course_utils.course import CourseFileError, load_course
from course_utils.data import DataError, load_cifar10, load_digits
from course_utils.devices import DeviceError, get_device
from course_utils.errors import expect_error
from course_utils.exercises import Exercise
from course_utils.exercises import lesson as exercises_of
from course_utils.timing import Measurement, measure
from course_utils.tqdm_bar import bar
from simgpu.machine import MACHINE

# --- the package ------------------------------------------------------------------------------


def test_importing_the_package_imports_nothing_heavy():
    code = (
        "import sys, course_utils, course_utils.__main__, course_utils.cli\n"
        "heavy = {'torch', 'numpy', 'matplotlib', 'IPython', 'yaml', 'tqdm'} & set(sys.modules)\n"
        "sys.exit(', '.join(heavy) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_every_offered_name_is_there_and_an_unknown_one_is_answered():
    for name in course_utils.__all__:
        assert getattr(course_utils, name) is not None
    with pytest.raises(AttributeError, match=r"has no 'get_devise'; it offers .*get_device"):
        course_utils.get_devise  # noqa: B018


def test_start_names_what_is_missing(monkeypatch):
    monkeypatch.setattr(session, "NEEDED", ("torch", "no_such_module_here"))
    with pytest.raises(ModuleNotFoundError, match=r"no_such_module_here.*course_utils lab"):
        session.start("00")


def test_start_says_that_the_lesson_is_ready_what_is_solved_and_the_way_back(fake, monkeypatch, capsys):
    fake("sim")
    monkeypatch.setattr(devices, "full_card", True)
    monkeypatch.setattr(simgpu, "enabled", lambda: False)
    names = {}
    monkeypatch.setattr(session, "ipython_shell", lambda: SimpleNamespace(user_ns=names))
    exercises = course_utils.start("01")
    ready = "Lesson 01 is ready. No GPU, so a simulated T4 takes its place. {} of 6 exercises solved.\n"
    assert capsys.readouterr().out == ready.format(0), "there is nothing to go back to"
    progress_file.record_attempt(next(iter(exercises)).id, "right")
    names["ex"] = course_utils.start("01")
    said = capsys.readouterr().out
    assert said.startswith(ready.format(1))
    assert 'course_utils.catch_up("01") brings you back to section ' in said
    course_utils.start("01")
    assert capsys.readouterr().out == ready.format(1), "the kernel has what the cells above made"


@pytest.mark.slow
def test_start_speaks_the_notebooks_language_whatever_the_kernel_was_started_in():
    says = "import course_utils; course_utils.start('00'{})\nfrom course_utils import devices\n"
    says += "print(devices.SWITCH_ON['colab'])"
    for variable, argument, chinese in (("zh", "", False), ("en", ", language='zh'", True)):
        env = {**os.environ, "COURSE_LANGUAGE": variable, "PYTHONUTF8": "1", "COURSE_DEVICE": "cpu"}
        call = [sys.executable, "-c", says.format(argument)]
        out = subprocess.run(
            call, cwd=ROOT, env=env, capture_output=True, encoding="utf-8", check=True
        ).stdout
        ready, imported = out.splitlines()
        assert ("准备好" in ready) is chinese and ("Lesson 00 is ready." in ready) is not chinese
        assert imported.startswith("For a GPU: ") is not chinese


# --- devices ----------------------------------------------------------------------------------


@pytest.fixture
def fake(monkeypatch):
    """Return a function that sets which kinds of device are present, and which of them fail."""
    monkeypatch.delenv("COURSE_DEVICE", raising=False)
    monkeypatch.setattr(devices, "abilities", _fake_abilities)

    def fake(*present, broken=()):
        problem = None if "sim" in present else "This PyTorch cannot simulate a device."
        monkeypatch.setattr(simgpu, "unavailable_reason", lambda: problem)
        monkeypatch.setattr(simgpu, "first", lambda: torch.device("meta"))  # in sim's place
        monkeypatch.setattr(simgpu, "disable_for", lambda device: None)  # these are none to give way to
        monkeypatch.setattr(devices, "_is_available", lambda kind: kind in (*present, "cpu"))
        monkeypatch.setattr(
            devices, "problem_with", lambda device: "no kernel image" if device.type in broken else None
        )

    return fake


def _fake_abilities(device):
    device = torch.device(device)
    return devices.Abilities(device, f"fake {device.type}", None, bf16=True, tf32=False)


@pytest.mark.parametrize(
    ("present", "broken", "expected"),
    [
        ((), (), "cpu"),
        (("cuda",), (), "cuda"),
        (("mps",), (), "mps"),
        (("xpu", "mps"), (), "xpu"),
        (("mps", "xpu", "cuda"), (), "cuda"),
        (("cuda",), ("cuda",), "cpu"),
        (("cuda", "mps"), ("cuda",), "mps"),
        (("sim",), (), "meta"),
        (("mps", "sim"), (), "mps"),
        (("cuda", "sim"), ("cuda",), "meta"),
        (("sim",), ("meta",), "cpu"),
    ],
)
def test_the_best_device_that_works_is_chosen(fake, present, broken, expected):
    fake(*present, broken=broken)
    assert get_device(quiet=True) == torch.device(expected)


def test_a_device_that_fails_its_kernel_is_passed_over_with_a_note(fake, capsys):
    fake("cuda", broken=("cuda",))
    assert get_device().type == "cpu"
    assert "cuda is there, but does not work: no kernel image" in capsys.readouterr().out


def test_where_nothing_can_be_simulated_the_card_says_why_in_a_sentence(fake, capsys):
    fake()
    get_device(quiet=True)
    assert capsys.readouterr().out == ""
    assert get_device().type == "cpu"
    assert "Note: This PyTorch cannot simulate a device." in capsys.readouterr().out
    fake("mps")
    assert get_device().type == "mps"
    assert "Note" not in capsys.readouterr().out


def test_an_old_pytorch_is_told_what_it_lacks(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.utils.backend_registration", None)
    reason = simgpu.unavailable_reason()
    assert torch.__version__ in reason and reason.endswith(".") and "\n" not in reason
    monkeypatch.setattr(MACHINE, "devices", [])
    monkeypatch.setenv("COURSE_DEVICE", "sim:0")
    with pytest.raises(DeviceError, match=r"COURSE_DEVICE asks for 'sim:0'.*lacks what"):
        get_device()


@pytest.fixture
def sim(simulated, monkeypatch):
    monkeypatch.delenv("COURSE_DEVICE", raising=False)
    return simgpu.enable("T4")


def test_the_simulated_device_can_be_asked_for_by_name(sim, monkeypatch, capsys):
    assert get_device("sim") == get_device("sim:0") == sim
    said = capsys.readouterr().out
    assert "sim:0: Simulated NVIDIA T4" in said
    assert "this GPU is simulated" in said and "every time it gives is modelled" in said
    monkeypatch.setenv("COURSE_DEVICE", "sim")
    assert get_device(quiet=True) == sim
    monkeypatch.setenv("COURSE_DEVICE", "cpu")
    assert get_device(quiet=True).type == "cpu"


def test_a_simulated_device_that_is_not_there_is_refused_in_one_line(sim):
    with pytest.raises(DeviceError, match=r"'sim:3', but it does not work here .*ordinal") as caught:
        get_device("sim:3")
    assert "\n" not in str(caught.value)


def test_course_device_overrides_and_an_argument_overrides_it(fake, monkeypatch):
    fake("cuda")
    monkeypatch.setenv("COURSE_DEVICE", "cpu")
    assert get_device(quiet=True).type == "cpu"
    assert get_device("cuda:0", quiet=True) == torch.device("cuda:0")
    monkeypatch.setenv("COURSE_DEVICE", "")
    assert get_device(quiet=True).type == "cuda"


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ("gpu", "COURSE_DEVICE asks for 'gpu', which PyTorch does not know"),
        ("cuda", "COURSE_DEVICE asks for 'cuda', but it does not work here (no kernel image)"),
    ],
)
def test_a_wrong_course_device_is_refused_in_one_line(fake, monkeypatch, asked, says):
    fake(broken=("cuda",))
    monkeypatch.setenv("COURSE_DEVICE", asked)
    with pytest.raises(DeviceError) as caught:
        get_device()
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


CARDS = {
    "T4": ((7, 5), 15.8, False, "float16 with a GradScaler", "TF32: no"),
    "A100": ((8, 0), 80, True, "ready for every lesson", "TF32: yes"),
}


@pytest.mark.parametrize("name", CARDS)
def test_the_card_of_a_gpu_says_what_it_is_good_for(name, monkeypatch):
    (major, minor), gib, bf16, advice, tf32 = CARDS[name]
    properties = SimpleNamespace(
        name=f"NVIDIA {name}", major=major, minor=minor, total_memory=int(gib * 2**30)
    )
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: bf16)
    monkeypatch.setattr(torch.cuda, "device", lambda device: contextlib.nullcontext())
    monkeypatch.setattr(torch.version, "hip", None)
    text = devices.device_card(torch.device("cuda", 0)).text
    assert f"cuda:0: NVIDIA {name}" in text
    assert f"Compute capability: {major}.{minor}" in text
    assert f"{gib:.1f} GiB" in text
    assert advice in text
    assert tf32 in text


@pytest.mark.parametrize(
    ("variable", "repository", "says"),
    [
        ("COLAB_RELEASE_TAG", None, "Runtime > Change runtime type"),
        ("KAGGLE_KERNEL_RUN_TYPE", None, "Settings > Accelerator"),
        ("", "ada/gpu", "open the lesson in Colab: the badge is at the top"),
        ("", None, 'see "Where should you run the course?" in lesson 00'),
    ],
)
def test_a_cpu_card_says_where_to_find_a_gpu(monkeypatch, variable, repository, says):
    course = SimpleNamespace(repository=repository)  # a lesson has badges where that has a name
    monkeypatch.setattr(devices, "load_course", lambda: course)
    for name in ("COLAB_RELEASE_TAG", "KAGGLE_KERNEL_RUN_TYPE"):
        monkeypatch.delenv(name, raising=False)
    if variable:
        monkeypatch.setenv(variable, "1")
    card = devices.device_card(torch.device("cpu"))
    assert says in card.text
    assert ("badge" in card.text) is bool(repository)
    assert f"{this_machine.usable_cores()} usable" in card.text


def test_a_card_escapes_what_it_shows():
    card = devices.device_card(torch.device("cpu"), ["cuda is there: <driver> & more"])
    assert "&lt;driver&gt; &amp; more" in card.html
    assert "<driver>" not in card.html


def test_after_lesson_00_the_card_is_a_line_with_the_rest_folded(fake, monkeypatch, capsys):
    fake()
    monkeypatch.setattr(devices, "full_card", True)
    for lesson, heads in (("00", True), ("01", False)):
        course_utils.start(lesson)
        capsys.readouterr()
        get_device("cpu")
        said = capsys.readouterr().out
        assert ("Device: cpu" in said) is ("Native bfloat16" in said) is heads
    line = devices.device_line(torch.device("cpu"), ["cuda is <there>."])
    assert line.text.splitlines() == ["cpu: fake cpu. Every cell runs on it.", "cuda is <there>."]
    folded, note = line.html.split("</details>")
    assert folded.startswith("<details><summary>cpu: ") and "Native bfloat16" in folded
    assert "cuda is &lt;there&gt;." in note, "what is wrong is not folded"


def test_the_first_call_says_why_one_waits(fake, monkeypatch, capsys):
    fake()
    waits = "The first call takes some seconds, once"
    for uncompiled in (True, False):
        monkeypatch.setattr(devices, "_is_uncompiled", lambda is_so=uncompiled: is_so)
        get_device(quiet=True)
        assert capsys.readouterr().out == ""
        get_device("cpu")
        assert waits not in capsys.readouterr().out, "only the simulated device needs those files"
        get_device()
        assert (waits in capsys.readouterr().out) is uncompiled


@pytest.mark.parametrize(
    ("present", "asked", "says"),
    [
        (("cuda",), "", "PyTorch sees a GPU."),
        (("sim",), "", "No GPU, so a simulated T4 takes its place."),
        ((), "", "No GPU, so the CPU does all the work."),
        (("cuda", "sim"), "cpu", "COURSE_DEVICE asks for cpu."),
    ],
)
def test_the_device_to_expect(fake, monkeypatch, present, asked, says):
    fake(*present)
    monkeypatch.setenv("COURSE_DEVICE", asked)
    monkeypatch.setattr(simgpu, "enabled", lambda: False)
    assert devices.expected_device() == says


# --- timing -----------------------------------------------------------------------------------


def test_measure_keeps_at_least_five_repetitions_with_ordered_quartiles():
    m = measure(lambda: sum(range(1000)), "sum", device="cpu", min_seconds=0.02)
    assert m.n >= timing.MIN_REPETITIONS == 5
    assert 0 < m.q1 <= m.median <= m.q3
    assert (m.label, m.kind, m.device) == ("sum", "measured", "cpu")
    assert Measurement(**m.as_dict()) == m
    assert json.dumps(m.as_dict())


@pytest.mark.serial
def test_measure_finds_the_length_of_a_sleep():
    m = measure(lambda: time.sleep(0.01), device="cpu")
    assert 0.0095 < m.median < 0.03
    assert m.n >= 5


def test_measure_waits_for_an_asynchronous_device_before_it_reads_the_clock(monkeypatch):
    """Work is only queued; without the wait it would seem to take no time."""
    queue = collections.deque()

    def drain(device=None):
        while queue:
            time.sleep(queue.popleft())

    monkeypatch.setattr(timing, "synchronize", drain)
    m = measure(lambda: queue.append(0.004), device="cpu", min_seconds=0.05)
    assert m.median > 0.0035


def test_measure_on_the_simulated_device_is_modelled_and_always_the_same(sim):
    a, b = torch.rand(2, 256, 256, device=sim)
    first, again = (measure(lambda: a @ b, "product", device=sim) for _ in range(2))
    assert (first.kind, first.device, first.n) == ("modelled", "sim:0", timing.MIN_REPETITIONS)
    assert first.machine == "Simulated NVIDIA T4"
    assert first.q1 == pytest.approx(first.q3) and first.median == pytest.approx(again.median)
    assert "modelled on sim:0" in str(first)
    assert measure(lambda: time.sleep(0.02), device=sim).median < 1e-3, "a virtual clock"


def test_work_of_the_cpu_is_not_modelled_because_a_simulated_device_is_there(sim):
    on_cpu = measure(lambda: time.sleep(0.005), min_seconds=0.01)
    assert (on_cpu.kind, on_cpu.device) == ("measured", "cpu") and on_cpu.median > 0.0049
    if torch.accelerator.current_accelerator().type == "sim":
        x = torch.zeros(8, device=sim)
        on_sim = measure(lambda: x.add_(1))
        assert (on_sim.kind, on_sim.device) == ("modelled", "sim:0")


def test_measure_on_the_simulated_device_calls_slow_work_few_times(sim):
    calls = []

    def slow():
        calls.append(1)
        simgpu.host_work(0.5)

    assert measure(slow, device=sim, min_seconds=30).median == pytest.approx(0.5, rel=1e-3)
    assert len(calls) <= 10


def test_the_host_clock_does_not_wait_for_the_device(sim):
    assert timing.host_clock("cpu") is time.perf_counter
    clock = timing.host_clock(sim)
    a, b = torch.rand(2, 1024, 1024, device=sim)
    times = []
    for wait in (False, True):
        devices.synchronize(sim)
        start = clock()
        a @ b
        if wait:
            devices.synchronize(sim)
        times.append(clock() - start)
    assert 0 < times[0] < times[1] / 3


def test_measure_refuses_what_it_cannot_call():
    with pytest.raises(TypeError, match=r"wants a function it can call.*got 3"):
        measure(3)


@pytest.mark.parametrize(
    ("value", "text"),
    [(2.5, "2.5 s"), (0.001234, "1.23 ms"), (4.56e-6, "4.56 µs"), (3e-9, "3 ns"), (60, "60 s")],
)
def test_times_have_a_fitting_unit(value, text):
    assert timing.seconds(value) == text


# --- deliberate errors ------------------------------------------------------------------------


def test_an_expected_error_is_shown_and_kept(capsys):
    with expect_error(RuntimeError, match="shapes cannot be multiplied") as caught:
        torch.ones(2, 3) @ torch.ones(2, 3)
    shown = capsys.readouterr().out  # a newer PyTorch names the operation too
    assert shown.startswith("RuntimeError: ") and "mat1 and mat2 shapes cannot be" in shown
    assert "cannot be multiplied" in caught.message


def test_a_block_that_does_not_fail_is_refused():
    with pytest.raises(AssertionError, match="meant to fail with ValueError, and did not"):  # noqa: SIM117
        with expect_error(ValueError):
            pass


def test_another_message_is_refused():
    with pytest.raises(AssertionError, match="a message like 'memory'; it said: shape"):  # noqa: SIM117
        with expect_error(ValueError, match="memory"):
            raise ValueError("shape")


def _fail_with(tensor):
    raise ValueError(f"shape {tuple(tensor.shape)}")


def test_an_expected_error_keeps_no_tensor_alive():
    def block():
        tensor = torch.ones(3)
        with expect_error(ValueError) as caught:
            _fail_with(tensor)
        return caught, weakref.ref(tensor)

    caught, alive = block()
    gc.collect()
    assert alive() is None
    assert caught.error.__traceback__ is None


# --- the progress bar -------------------------------------------------------------------------


@pytest.mark.slow
def test_a_bar_in_a_notebook_is_one_finished_line(tmp_path):
    nb = notebook(
        f"import sys\nsys.path.insert(0, {str(ROOT)!r})\n"
        "import time\nfrom course_utils import bar\n"
        "for i in bar(range(30), desc='epoch <1>'):\n    time.sleep(0.02)",
        "steps = bar(total=4, desc='by hand')\n"
        "for loss in (0.5, 0.4):\n    steps.update(2)\n    steps.set_postfix(loss=loss)\n"
        "steps.close()",
        "for i in bar(range(5)):\n    if i == 2:\n        break",
        "for i in bar(iter(range(3)), desc='no total'):\n    pass",
    )
    execute(nb, tmp_path)
    outputs = [cell.outputs for cell in code_cells(nb)]
    assert [len(found) for found in outputs] == [1, 1, 1, 1], outputs
    texts = [found[0].data["text/plain"] for found in outputs]
    assert "epoch <1>" in texts[0]
    assert "100% 30/30" in texts[0]
    assert "4/4" in texts[1]
    assert "loss=0.4" in texts[1]
    assert "3" in texts[3]
    assert 'value="30" max="30"' in outputs[0][0].data["text/html"]
    assert "epoch &lt;1&gt;" in outputs[0][0].data["text/html"]


def test_a_bar_elsewhere_is_tqdms_own():
    text = io.StringIO()
    assert list(bar(range(3), desc="epoch", file=text)) == [0, 1, 2]
    assert "epoch: 100%" in text.getvalue()


# --- data -------------------------------------------------------------------------------------


def test_digits_have_the_shapes_and_classes_they_should():
    split = load_digits()
    assert split.train_x.shape == (8000, 28, 28)
    assert split.test_x.shape == (2000, 28, 28)
    assert (split.train_x.dtype, split.train_y.dtype) == (torch.uint8, torch.int64)
    assert split.train_x.max() == 255
    counts = torch.bincount(torch.cat([split.train_y, split.test_y]))
    assert len(counts) == 10
    assert (counts.min(), counts.max()) == (863, 1127)
    assert torch.bincount(split.test_y).min() > 100, "every digit is in the test split"


def test_the_split_is_disjoint_complete_and_stable():
    def rows(x):
        return {image.numpy().tobytes() for image in x}

    one, two = load_digits(), load_digits()
    train, test = rows(one.train_x), rows(one.test_x)
    assert not train & test
    assert len(train) + len(test) == 10_000
    assert all(torch.equal(a, b) for a, b in zip(one, two, strict=True))
    assert len(load_digits(test=1).test_y) == 1


def test_the_split_does_not_touch_the_learners_random_numbers():
    torch.manual_seed(1)
    expected = torch.rand(1)
    torch.manual_seed(1)
    load_digits()
    assert torch.rand(1) == expected


@pytest.mark.parametrize("test", [0, -1, 10_000])
def test_an_impossible_split_is_refused(test):
    with pytest.raises(ValueError, match="between 1 and 9999"):
        load_digits(test)


@pytest.mark.parametrize("content", [None, b"", b"not a zip", "cut", "flipped", "other"])
def test_a_damaged_file_is_answered_in_a_sentence(monkeypatch, tmp_path, content):
    path = tmp_path / "digits.npz"
    if content == "cut":
        path.write_bytes(data.DIGITS.read_bytes()[:100_000])
    elif content == "flipped":
        whole = bytearray(data.DIGITS.read_bytes())
        whole[len(whole) // 2] ^= 0xFF
        path.write_bytes(whole)
    elif content == "other":
        import numpy as np

        np.savez(path, pictures=np.zeros(3))
    elif content is not None:
        path.write_bytes(content)
    monkeypatch.setattr(data, "DIGITS", path)
    with pytest.raises(DataError, match=r"cannot be read .* get a fresh copy of the course"):
        load_digits()


def test_cifar10_without_torchvision_is_answered_in_a_sentence(monkeypatch):
    monkeypatch.setitem(sys.modules, "torchvision", None)
    monkeypatch.setitem(sys.modules, "torchvision.datasets", None)
    with pytest.raises(DataError, match=r"comes through torchvision.*load_digits\(\) need nothing"):
        load_cifar10()


def test_cifar10_without_a_network_is_answered_in_a_sentence(monkeypatch, tmp_path):
    def refuse(root, train, download):
        raise OSError("no route to host")

    monkeypatch.setitem(sys.modules, "torchvision", SimpleNamespace())
    monkeypatch.setitem(sys.modules, "torchvision.datasets", SimpleNamespace(CIFAR10=refuse))
    with pytest.raises(DataError, match=r"no route to host.*Check the network and run the cell"):
        load_cifar10(tmp_path)


# --- plots ------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_plot_in_a_notebook_is_a_picture_with_alternative_text(tmp_path):
    nb = notebook(
        f"import sys\nsys.path.insert(0, {str(ROOT)!r})\n"
        "from course_utils import plots\nplots.use_style()\n"
        "plots.curves({'CPU': ([1, 2], [3, 4]), 'T4': ([1, 2], [1, 2])}, xlabel='size',\n"
        "    ylabel='time (s)', alt='Two <lines>.', kinds={'T4': 'recorded'}, log='xy',\n"
        "    reference=(2, 'limit'), xticks=[1, 2])",
        "live = plots.LivePlot('step', 'loss', alt='The loss falls.', every=0)\n"
        "for step in range(5):\n    live.add(step, {'training': 1 / (step + 1)})\n"
        "live.close()",
    )
    execute(nb, tmp_path)
    for cell, alt in zip(code_cells(nb), ("Two <lines>.", "The loss falls."), strict=True):
        (output,) = cell.outputs
        assert output.metadata["image/png"]["alt"] == alt
        assert output.data["text/plain"] == alt
        png = io.BytesIO(base64.b64decode(output.data["image/png"]))
        assert plots.plt.imread(png, format="png").shape[2] in (3, 4)


def test_plots_leave_no_figure_open_and_print_their_text_elsewhere(capsys):
    before = plots.plt.get_fignums()
    plots.curves({"a": ([1], [1])}, xlabel="x", ylabel="y", alt="One point.")
    live = plots.LivePlot("step", "loss", alt="The loss falls.", every=0)
    live.add(0, {"training": 1.0})
    live.close()
    assert plots.plt.get_fignums() == before
    assert capsys.readouterr().out == "One point.\nThe loss falls.\n"


@pytest.mark.parametrize(
    ("y", "plain"),
    [
        ([2.1, 2.5, 4.4], True),
        ([2.1, 2.15, 2.2], True),
        ([0.02, 0.2, 13], True),
        ([30, 300, 9000], True),
        ([2e-6, 2.4e-6, 4e-6], False),
        ([1e-9, 1.0, 1e6], False),
    ],
)
def test_a_logarithmic_axis_can_always_be_read(monkeypatch, y, plain):
    figures = []
    monkeypatch.setattr(plots, "present", lambda fig, alt: figures.append(fig))
    plots.curves({"a": ([1, 2, 3], y)}, xlabel="x", ylabel="y", alt="", log="xy", xticks=[1, 2, 3])
    (fig,) = figures
    axis = fig.axes[0].yaxis
    fig.canvas.draw()
    low, high = axis.get_view_interval()
    shown = [tick.get_text() for tick in axis.get_ticklabels()]
    assert 3 <= len(shown) <= 9 and all(shown)
    assert all(low <= place <= high for place in axis.get_ticklocs())
    assert not any(tick.get_text() for tick in axis.get_ticklabels(minor=True))
    if plain:
        assert [float(text) for text in shown] == pytest.approx(list(axis.get_ticklocs()))
    else:
        assert all("10^" in text for text in shown)
    plots.plt.close(fig)


# --- progress ---------------------------------------------------------------------------------


@pytest.fixture
def file(tmp_path, monkeypatch):
    path = tmp_path / "new folder" / "progress.jsonl"
    monkeypatch.setenv("COURSE_PROGRESS", str(path))
    return path


FORMER = {  # ids in files of before lesson 03 was divided
    "02.tower": "02.tower",
    "03.train_epoch": "03.train_epoch",
    "03.full_state": "04.full_state",
    "04.amp_step": "05.amp_step",
    "05.accumulate": "06.accumulate",
    "05.sharded_bytes": "11.sharded_bytes",
    "08.as_numpy": "09.as_numpy",
    "10.microbatches": "11.microbatches",
}


def test_what_was_solved_before_the_lessons_were_renumbered_stays_solved(tmp_path, monkeypatch):
    file = tmp_path / "progress.jsonl"
    monkeypatch.setenv("COURSE_PROGRESS", str(file))
    rest = {"time": "2026-11-01T10:00:00+00:00", "outcome": "right", "diagnosis": ""}
    lines = [json.dumps({"exercise": former} | rest) for former in FORMER]
    lines.append('{"prediction": "03.shuffles", "verdict": "right", "guess": "1 and 3", "unit": ""}')
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    assert progress_file.solved() == set(FORMER.values())
    assert progress_file.predictions() == {"04.shuffles": "right"}
    assert progress_file.first_guess("04.shuffles") == "1 and 3"
    progress_file.record_attempt("05.accumulate", "right")  # of today: the one of mixed precision
    assert "05.accumulate" in progress_file.solved()
    assert set(FORMER.values()) <= {e.id for entry in load_course().lessons for e in exercises_of(entry.id)}


def test_a_notebook_of_before_finds_an_exercise_under_its_former_lesson():
    assert exercises_of("03").full_state.id == "04.full_state"
    assert exercises_of("04").amp_step.id == "05.amp_step"
    with pytest.raises(AttributeError, match="it has train_epoch"):
        exercises_of("03").no_such  # noqa: B018


@pytest.mark.parametrize(
    "spoilt",
    [b'{"half": \n\xff\xfe\n[]\nnull\n{"time": 1}\n', b'{"time": "2026'],
    ids=["lines", "cut off"],
)
def test_damaged_lines_cost_no_other(file, spoilt):
    progress_file.record_attempt("00.a", "right")
    with file.open("ab") as f:
        f.write(spoilt)
    progress_file.record_attempt("00.b", "right")
    assert progress_file.solved() == {"00.a", "00.b"}


def test_writers_at_once_lose_nothing(file):
    threads = [
        threading.Thread(
            target=lambda k=k: [progress_file.record_attempt(f"0{k}.x", "right") for _ in range(50)]
        )
        for k in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(list(progress_file.attempts())) == 200


def _simple():
    def value():
        return 1

    return Exercise(
        id="00.value",
        title="A value",
        task="Say one.",
        level=1,
        minutes=1,
        hints=("It is small.", "It is 1."),
        reference=value,
        check_answer=lambda answer, judge: judge.closest([judge.number(answer)], [1.0], {}),
        why="One counts.",
        diagnoses={},
    )


def test_a_progress_file_that_cannot_be_written_does_not_stop_a_check(tmp_path, monkeypatch, capsys):
    (tmp_path / "file").write_text("no folder", encoding="utf-8")
    monkeypatch.setenv("COURSE_PROGRESS", str(tmp_path / "file" / "progress.jsonl"))
    _simple().check(1)
    out = capsys.readouterr().out
    assert "your progress could not be kept" in out
    assert "Right" in out
    assert progress_file.solved() == set()


def test_a_check_notes_its_outcome_but_not_a_stub(file):
    from course_utils import todo

    _simple().check(todo())
    assert not file.exists()
    _simple().check(2)
    _simple().check(1)
    assert [a.outcome for a in progress_file.attempts()] == ["not_yet", "right"]


def test_the_course_map_shows_what_is_done(file, capsys):
    course_utils.course_map()
    assert f"Kept in {file}" in capsys.readouterr().out
    progress_file.record_attempt("00.weight_bytes", "right")
    course_utils.course_map()
    row = next(line for line in capsys.readouterr().out.splitlines() if "Start here" in line)
    assert "●○" in row
    assert "1 of 2 exercises, begun" in row


# --- the table of contents --------------------------------------------------------------------


GOOD = """
repository: owner/name
lessons:
  - {id: "00", file: 00_a.ipynb, title: A, minutes: 5, question: "Why?"}
  - {id: "01", file: 01_b.ipynb, title: B, minutes: 5, question: "How?", planned: true}
"""


def test_a_good_table_of_contents_is_read(tmp_path):
    path = tmp_path / "course.yml"
    path.write_text(GOOD, encoding="utf-8")
    course = load_course(path)
    assert [lesson.id for lesson in course.ready] == ["00"]
    assert course.lesson("01").planned
    assert (course.repository, course.branch) == ("owner/name", "main")
    with pytest.raises(KeyError, match="no lesson '08'; the course has 00, 01"):
        course.lesson("08")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (None, "is missing"),
        ("lessons: [", "is not valid YAML"),
        ("", "needs a list of `lessons`"),
        ("lessons: 3", "needs a list of `lessons`"),
        ('lessons: [{id: "00"}]', "a lesson needs id, file, title, minutes, question"),
        ("lessons: [3]", "a lesson needs"),
        (GOOD.replace('"01"', '"00"'), "names a lesson twice"),
        (GOOD.replace("planned", "plannned"), "unknown fields ['plannned']"),
        (GOOD.replace("minutes: 5", "minutes: soon"), "minutes"),
        (GOOD.replace("minutes: 5", "minutes: 5, further: more"), "minutes and further are whole"),
        (GOOD.replace("planned: true", "needs: null"), "needs"),
    ],
)
def test_a_bad_table_of_contents_is_answered_in_a_sentence(tmp_path, text, says):
    path = tmp_path / "course.yml"
    if text is not None:
        path.write_text(text, encoding="utf-8")
    with pytest.raises(CourseFileError) as caught:
        load_course(path)
    assert says in str(caught.value)
    assert "course.yml" in str(caught.value)


def test_an_old_pytorch_is_refused_in_one_sentence(monkeypatch):
    monkeypatch.setattr(torch, "__version__", "2.9.1+cu126")
    with pytest.raises(DeviceError, match=r"This is PyTorch 2\.9\.1.* needs 2\.10 or newer: update"):
        get_device(quiet=True)
    for good in ("2.10.0", "2.15.0+cpu", "2.16.0.dev20261120", "3.0.0a0"):
        assert this_machine.old_torch(good) is None


@pytest.mark.parametrize("names", [{}, {"ex": 1}], ids=["not run", "run"])
def test_a_lesson_says_once_where_its_set_up_cell_has_not_run(names, monkeypatch, capsys):
    monkeypatch.setattr(IPython, "get_ipython", lambda: SimpleNamespace(user_ns=names))
    session.remind_of_setup.cache_clear()
    for _ in range(2):
        exec("from course_utils import predict, todo")
    assert capsys.readouterr().out.count("Run the set-up cell at the top") == (not names)
