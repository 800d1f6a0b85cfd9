"""The five doors: recorded machines are judged, and this machine is examined."""

import copy
import html
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from course_utils import doctor

CUDA13 = ["sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120"]


def machine(*, torch="cuda", driver=None, device=None, ran=True, bf16=None, platform="local", **more):
    """Return a machine's facts in the form that `gather` returns."""
    facts = {
        "platform": platform,
        "memory_gb": 16.0,
        "torch": {"imports": False, "error": None},
        "driver": driver or {"kind": None},
    }
    if torch:
        cuda = "13.0" if torch == "cuda" else None
        facts["torch"] = {"imports": True, "version": "2.13.0", "build": torch, "cuda": cuda}
    if device:
        facts |= {"device": device, "kernel": {"ran": ran}, "bf16": bf16}
    return facts | more


def nvidia(name, **more):
    return {"kind": "nvidia", "version": "580.95.05", "gpus": [name], **more}


def cuda(name, arch):
    return {"type": "cuda", "build": "cuda", "name": name, "arch": arch, "arch_list": CUDA13}


P100, T4, H200 = "Tesla P100-PCIE-16GB", "Tesla T4", "NVIDIA H200"
ROCM = {"type": "cuda", "build": "rocm", "name": "AMD Instinct MI300X", "arch": "gfx942"}
ROCM["arch_list"] = ["gfx90a", "gfx942"]
NO_IMAGE = {"ran": False, "error": "CUDA error: no kernel image is available"}
FULL = {"ran": False, "error": "CUDA out of memory. Tried to allocate 2.00 MiB"}
OLD = "The NVIDIA driver on your system is too old"
MACHINES = {
    "no GPU, CPU wheel": (
        machine(torch="cpu", simulated=True),
        "shut shut unknown unknown unknown",
        "No GPU here: the course simulates one; for a GPU open the course in Colab",
    ),
    "no GPU, a torch that cannot simulate one": (
        machine(torch="cpu", simulated=False),
        "shut shut unknown unknown unknown",
        "No GPU here: the lessons run on the CPU; for a",
    ),
    "CUDA wheel without a driver": (
        machine(simulated=True),
        "open shut unknown unknown unknown",
        "No GPU here: the course simulates one",
    ),
    "CPU wheel on a GPU machine": (
        machine(torch="cpu", driver=nvidia("NVIDIA GeForce RTX 4070"), simulated=True),
        "shut open unknown unknown unknown",
        "run on a simulated GPU for now; install the CUDA build: ",
    ),
    "wheel missing": (
        machine(torch=None),
        "shut shut unknown unknown unknown",
        "course_utils lab",
    ),
    "driver too old": (
        machine(driver=nvidia(T4, problem=OLD)),
        "open shut unknown unknown unknown",
        "The lessons run on the CPU for now; install a newer driver",
    ),
    "P100 on Kaggle": (
        machine(driver=nvidia(P100), device=cuda(P100, "sm_60"), kernel=NO_IMAGE, platform="kaggle"),
        "open open shut shut unknown",
        "choose Settings > Accelerator > GPU T4 x2",
    ),
    "T4 on Colab": (
        machine(driver=nvidia(T4), device=cuda(T4, "sm_75"), bf16=False, platform="colab"),
        "open open open open shut",
        "take float16 with a GradScaler",
    ),
    "H200": (
        machine(driver=nvidia(H200), device=cuda(H200, "sm_90"), bf16=True),
        "open open open open open",
        "Ready: the lessons use NVIDIA H200.",
    ),
    "Mac M2": (
        machine(
            torch="mps",
            driver={"kind": "apple"},
            device={"type": "mps", "build": "mps", "name": "the GPU of Apple M2"},
        ),
        "open open open open unknown",
        "Ready: the lessons use the GPU of Apple M2.",
    ),
    "ROCm": (
        machine(torch="rocm", driver={"kind": "amd"}, device=ROCM, bf16=True),
        "open open open open open",
        "Ready: the lessons use AMD Instinct MI300X.",
    ),
    "full GPU": (
        machine(driver=nvidia(H200), device=cuda(H200, "sm_90"), kernel=FULL),
        "open open open shut unknown",
        "close the other programs that use the GPU",
    ),
}


@pytest.mark.parametrize("name", MACHINES)
def test_a_recorded_machine_gets_its_doors_and_its_advice(name):
    facts, states, advised = MACHINES[name]
    before = copy.deepcopy(facts)
    doors = doctor.judge(facts)
    assert " ".join(door.state for door in doors) == states
    advice = doctor.advise(facts, doors)
    assert advised in advice
    assert advice.endswith(".") and advice[0].isupper() and "\n" not in advice
    assert facts == before
    for door in doors:
        assert door.seen
        assert door.remedy or door.state != "shut", f"{door.name} is shut and names no remedy"


@pytest.mark.parametrize("platform", ["colab", "kaggle"])
def test_nothing_is_installed_on_a_platform(platform):
    for facts, *_ in MACHINES.values():
        there = facts | {"platform": platform}
        doors = doctor.judge(there)
        for text in (doctor.advise(there, doors), *(door.remedy for door in doors)):
            assert "--torch" not in text and "course_utils lab" not in text


@pytest.mark.parametrize(
    ("arch", "listed", "runs"),
    [
        ("sm_60", CUDA13, False),
        ("sm_75", CUDA13, True),
        ("sm_89", CUDA13, True),  # machine code for 8.6 runs on 8.9
        ("sm_87", ["sm_90"], False),
        ("sm_90", ["sm_90a"], True),
        ("sm_103", ["sm_100a"], False),
        ("sm_103", ["sm_100"], True),
        ("sm_103", ["compute_100f"], True),  # PTX for a family: the same major version, not a later one
        ("sm_120", ["compute_100f"], False),
        ("sm_120", ["compute_100"], True),
        ("sm_121", ["sm_90", "compute_120"], True),
        ("sm_70", ["compute_75"], False),
        ("gfx942", ["gfx90a", "gfx942"], True),
        ("gfx1030", ["gfx90a", "gfx942"], False),
    ],
)
def test_which_wheels_run_on_which_gpu(arch, listed, runs):
    assert doctor.wheel_supports(arch, listed) is runs


CUDA126 = ["sm_50", "sm_60", "sm_70", "sm_75", "sm_80", "sm_86", "sm_90"]


@pytest.mark.parametrize(
    ("arch", "listed", "platform", "remedy"),
    [
        ("sm_61", CUDA13, "local", "an older build, which still has code for this GPU: .* cu126"),
        (
            "sm_120",
            CUDA126,
            "local",
            "delete the folder .venv and install the newest .* --torch cuda$",
        ),
        ("sm_120", [*CUDA126, "compute_90"], "local", None),
        ("sm_110", CUDA13, "local", "the newest build .* --torch cuda$"),  # a gap within the list
        ("sm_87", ["sm_90a"], "local", "an older build, .* --torch cu126$"),
        ("sm_60", CUDA13, "kaggle", "too old for today's wheels$"),
        ("sm_120", CUDA126, "kaggle", "too new for the wheel here$"),
    ],
)
def test_a_gpu_that_the_wheel_does_not_know_is_told_which_way_to_go(arch, listed, platform, remedy):
    device = cuda("a GPU", arch) | {"arch_list": listed}
    facts = machine(driver=nvidia("a GPU"), device=device, ran=False, platform=platform)
    door = doctor.judge(facts)[2]
    assert door.state == ("shut" if remedy else "open")
    assert re.search(remedy or "^$", door.remedy), door.remedy


def test_a_list_of_another_makers_gpus_is_not_compared_by_age():
    device = ROCM | {"name": "AMD Radeon", "arch": "gfx1030"}
    facts = machine(torch="rocm", driver={"kind": "amd"}, device=device, ran=False)
    assert "a GPU of the list" in doctor.judge(facts)[2].remedy


def test_this_machine_is_examined():
    report = doctor.examine()
    names = ["wheel", "driver", "architecture list", "a real kernel", "native bf16"]
    assert [door.name for door in report.doors] == names
    assert report.can_run
    assert "usable cores" in report.machine["processor"]
    assert float(report.machine["memory"].split()[0]) > 0.5
    assert json.loads(json.dumps(report.to_dict()))["advice"] == report.advice
    for door in report.doors:
        assert f"{door.name}" in str(report) and html.escape(door.seen) in report._repr_html_()


def test_damage_is_told_from_absence():
    facts = machine(torch=None) | {"torch": {"imports": False, "error": "libcudart.so.13: missing"}}
    door = doctor.judge(facts)[0]
    assert door.state == "shut" and "libcudart" in door.seen and "removed" in door.remedy


def call(*words, code="from course_utils.cli import main; sys.exit(main(sys.argv[1:]))", flags=()):
    root = Path(__file__).parents[1]
    code = f"import sys; sys.path.insert(0, {str(root)!r}); {code}"
    command = [sys.executable, *flags, "-c", code, *words]
    return subprocess.run(command, capture_output=True, encoding="utf-8", errors="replace")


@pytest.mark.slow
def test_the_command_prints_json():
    done = call("doctor", "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert len(report["doors"]) == 5 and report["can_run"] is True


def test_without_torch_the_command_fails_with_the_remedy():
    code = (
        "from course_utils.cli import bootstrap, main; bootstrap.other_python = lambda: None; "
        "sys.exit(main(['doctor']))"
    )
    done = call(code=code, flags=("-S",))
    assert done.returncode == 1
    assert "torch is not installed" in done.stdout
    assert done.stdout.strip().splitlines()[-1].startswith("PyTorch is missing here: call ")
