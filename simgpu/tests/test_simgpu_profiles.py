"""The figures of the cards: where they come from, and whether they fit together."""

from __future__ import annotations

import json

import pytest
import torch

import simgpu
from simgpu import profiles

RAW = json.loads(profiles._FILE.read_text(encoding="utf-8"))["profiles"]
UNITS = {"byte", "byte/s", "FLOP/s", "Hz", "s", "W", "1"}
CORES = {(7, 0): 64, (7, 5): 64, (8, 0): 64}
"""Float32 cores of a processor, by compute capability; elsewhere 128."""

every_card = pytest.mark.parametrize("name", profiles.names())


@pytest.fixture
def as_before():
    """Enable a T4 after each test."""
    yield
    simgpu.enable("T4")


@pytest.mark.parametrize("name", ["V10", "", "RTX", "H 100 PCIe", None, ["T4"]])
def test_an_unknown_profile_is_refused_with_the_names_there_are(name):
    with pytest.raises(ValueError, match="There is no profile") as refusal:
        profiles.load(name)
    assert f"Choose one of {', '.join(profiles.names())}." in str(refusal.value)


@pytest.mark.parametrize(
    ("name", "key"),
    [("t4", "T4"), ("rtx4090", "RTX 4090"), ("Rtx 4090", "RTX 4090"), ("a100-40gb", "A100-40GB")],
)
def test_capitals_and_spaces_do_not_matter(name, key):
    assert profiles.load(name) is profiles.load(key)
    assert profiles.load(name).key == key


@pytest.mark.usefixtures("as_before")
def test_a_card_is_enabled_by_any_way_to_write_it():
    device = simgpu.enable("rtx5090")
    assert simgpu.profile(device) is profiles.load("RTX 5090")
    assert torch.sim.get_device_name(device) == "Simulated NVIDIA GeForce RTX 5090"


@every_card
def test_every_figure_has_a_source_and_a_unit(name):
    figures = RAW[name]["figures"]
    for key, figure in figures.items():
        assert set(figure) == {"value", "unit", "source"}, key
        assert figure["unit"] in UNITS, key
        assert len(figure["source"]) > 15, key
        unused = key == "throttle_rise" and figures["throttle_most"]["value"] == 1
        assert figure["value"] is None or figure["value"] > 0 or unused, key
        if key.endswith("efficiency"):
            assert figure["value"] <= 1, key


@every_card
def test_cores_and_clock_give_the_float32_rate(name):
    card = profiles.load(name)
    cores = card.processors * CORES.get(card.capability, 128)
    assert card.fp32_flops == pytest.approx(2 * cores * card.clock, rel=0.02)


@every_card
def test_the_tensor_cores_are_twice_as_fast_with_halves_as_with_tf32(name):
    card = profiles.load(name)
    assert card.fp16_flops >= card.fp32_flops
    if card.capability < (8, 0):
        assert card.tf32_flops is card.bf16_flops is None and card.bf16_emulated_flops
    else:
        assert card.fp16_flops == pytest.approx(2 * card.tf32_flops, rel=0.03)
        assert card.bf16_flops == card.fp16_flops and card.bf16_emulated_flops is None


def test_an_h100_and_an_h200_are_one_chip_with_different_memory():
    h100, h200 = profiles.load("H100"), profiles.load("H200")
    for key in ("processors", "clock", "l2", "shared_memory", "power", "capability", "peer"):
        assert getattr(h100, key) == getattr(h200, key), key
    for key in ("tf32", "fp16", "bf16"):
        assert h100.rates[key] == pytest.approx(h200.rates[key], rel=0.05), key
    assert h200.memory_rate > 1.3 * h100.memory_rate
    assert h200.total_memory > 1.7 * h100.total_memory
