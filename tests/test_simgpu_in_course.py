"""The simulated device as the course uses it: its figures, and when it is chosen."""

import pytest
import torch

from course_utils import devices
from course_utils.evidence import published_gpus
from simgpu import profiles, trial
from tools.commands import record


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
    assert {gpu.name for gpu in published_gpus()} == {
        profiles.load(name).name for name in record.PROFILES
    }


@pytest.fixture
def untried():
    trial.fault.cache_clear()
    yield
    trial.fault.cache_clear()


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
