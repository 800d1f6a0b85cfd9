"""The simulated device as the course uses it: its figures, and when it is chosen."""

import threading
import time

import pytest
import torch
from support import python

from course_utils import devices
from course_utils.evidence import published_gpus
from course_utils.exercises import Exercise
from simgpu import cluster, profiles, selftest
from tools.commands import record

STARTS = "A second process with the simulated GPU starts: some seconds, once.\n"


@pytest.mark.parametrize("gpu", published_gpus(), ids=lambda gpu: gpu.name)
def test_profiles_agree_with_the_published_figures(gpu):
    (profile,) = (p for p in map(profiles.load, profiles.names()) if p.name == gpu.name)
    assert ".".join(map(str, profile.capability)) == gpu.compute_capability
    assert profile.fp32_flops == gpu.fp32_tflops * 1e12
    assert profile.fp16_flops == gpu.fp16_tensor_tflops * 1e12
    assert profile.bf16_flops == (gpu.bf16_tensor_tflops and gpu.bf16_tensor_tflops * 1e12)
    assert profile.bandwidth == gpu.bandwidth_gb_s * 1e9
    # What a program sees is a little less; makers mean 10^9 for the T4 and 2^30 for the others.
    assert 0.95 < profile.total_memory / (gpu.memory_gb * 1e9) < 2**30 / 1e9


def test_the_modelled_files_are_of_the_gpus_the_course_speaks_of():
    assert {gpu.name for gpu in published_gpus()} == {profiles.load(name).name for name in record.PROFILES}


@pytest.fixture
def untried():
    selftest.training_step_error.cache_clear()
    yield
    selftest.training_step_error.cache_clear()


def broken(*_, **__):
    raise AssertionError("this formula does not know its shapes")


@pytest.mark.usefixtures("two_devices")
def test_a_lesson_goes_on_on_the_cpu_where_the_step_fails(untried, monkeypatch, capsys):
    monkeypatch.setattr(devices, "ORDER", ("sim", "cpu"))
    monkeypatch.delenv("COURSE_DEVICE", raising=False)
    monkeypatch.setattr(torch.optim.AdamW, "step", broken)
    assert devices.get_device() == torch.device("cpu")
    note = capsys.readouterr().out
    assert "sim is there, but does not work: AssertionError: this formula" in note
    with pytest.raises(devices.DeviceError, match="asks for 'sim', but it does not work here"):
        devices.get_device("sim")


@pytest.mark.slow
def test_an_import_of_the_course_leaves_pytorch_without_the_device():
    code = """
        import torch
        import course_utils
        print(torch._C._get_privateuse1_backend_name(), hasattr(torch, "sim"))
        """
    assert python(code) == "privateuseone False\n"


@pytest.mark.slow
@pytest.mark.usefixtures("two_devices")
def test_a_pytorch_that_takes_devices_differently_leaves_the_course_on_the_cpu():
    """Its private names may change in any release: one sentence, and a device that works."""
    out = python(
        """
        import torch
        from torch.optim import optimizer
        del optimizer._foreach_supported_types
        import simgpu
        from course_utils import get_device
        device = get_device()
        print(device, torch.ones(2, device=device).sum().item())
        print(simgpu.unavailable_reason())
        print(get_device())
        """
    )
    assert "cpu 2.0" in out
    assert out.count("takes a device from Python in another way than this course knows") == 3
    assert "Traceback" not in out


# --- the cluster in an exercise


def exercise(program, **how):
    return Exercise(
        **dict.fromkeys(("title", "task", "why"), ""),
        id="06.x",
        level=1,
        minutes=1,
        hints=(),
        reference=lambda dist: None,
        check_answer=lambda answer, judge: cluster.run(lambda dist: program(answer, judge, dist), 2),
        diagnoses={"no-good": "no good"},
        **how,
    )


def test_an_exercise_that_checks_on_the_cluster_keeps_its_outcomes():
    before = set(threading.enumerate())

    def judging(answer, judge, dist):
        if answer(dist) != dist.get_rank():
            judge.no("no-good", seen=1)

    task = exercise(judging, limit=0.5)
    assert task.result(lambda dist: dist.get_rank()).outcome == "right"
    assert task.result(lambda dist: 0).diagnosis == "no-good"
    raised = task.result(lambda dist: 1 // 0)
    assert (raised.outcome, raised.diagnosis) == ("raised", "ZeroDivisionError")

    def endless(dist):
        while dist.get_rank() == 1:
            pass
        return 0

    stopped = task.result(endless)
    assert (stopped.outcome, stopped.diagnosis) == ("not_yet", "too-slow")
    time.sleep(0.2)  # its threads end
    assert set(threading.enumerate()) <= before


# --- on a machine with a GPU: the device is in another process


@pytest.mark.slow
def test_the_device_that_is_chosen_keeps_the_simulated_one_out():
    out = python(
        """
        import torch
        import simgpu
        from course_utils import devices
        devices.problem_with = lambda device: None
        torch.cuda.is_available = lambda: True
        print(devices.get_device(quiet=True), simgpu.unavailable_reason())
        """
    )
    assert out.startswith("cuda This process uses cuda.")


@pytest.mark.slow
def test_checks_and_what_the_lessons_show_are_there_as_everywhere():
    """Without the device the check of ``mend_a`` takes the given loop, which is the faulty one, for right."""
    out = python(
        """
        import sys
        import torch
        import simgpu
        from course_lessons.lesson07 import trial
        from course_lessons.lesson08 import detective
        from course_utils.exercises import lesson
        simgpu.disable_for("mps")
        mend = lesson("08").mend_a

        def fails(model, batches, optimizer):
            return model.no_such_layer

        for answer in (detective.CASES["a"].loop, mend.reference, fails):
            result = mend.result(answer)
            print(result.outcome, result.diagnosis)
        print(type(sys.last_value).__name__)
        run = detective.run("a", mend.reference)
        print(len(run.steps) > 1, run.facts is not None, bool(run.trace.spans))
        detective.present("a", mend.reference)

        def fill(card):
            held = torch.empty(2**24, device=card)
            return torch.sim.memory_allocated(card)

        print(trial.on_small_card(fill), simgpu.enabled())
        """
    )
    assert out.startswith(STARTS)
    lines = out.removeprefix(STARTS).splitlines()
    assert lines[0].startswith("not_yet each-")
    assert lines[1:5] == ["right ", "raised AttributeError", "AttributeError", "True True True"]
    assert lines[5].startswith("Modelled: ")
    assert lines[-1] == "67108864 False"


@pytest.mark.slow
@pytest.mark.parametrize("known", ["02", "03", "04", "07", "09"])
def test_known_answers_fare_there_as_here(known):
    """Of each exercise one right answer and the first wrong ones; test_exercises has their outcomes."""
    out = python(
        """
        import sys
        sys.path.insert(0, "tests")
        import simgpu
        from answers import wrong
        from course_utils.exercises import lesson
        simgpu.disable_for("mps")
        for exercise in lesson(sys.argv[1]):
            if exercise.wants_value:
                continue
            first = list(wrong(exercise).items())[:3]
            for diagnosis, answer in [("", exercise.reference), *first]:
                if (got := exercise.result(answer).diagnosis) != diagnosis:
                    print(exercise.id, repr(diagnosis), "became", got)
        """,
        known,
    )
    assert out == STARTS
