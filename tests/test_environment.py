"""The lists of dependencies agree, and the suite keeps its own rules."""

from __future__ import annotations

import re
import subprocess
import sys
from datetime import date, timedelta
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version
from support import skip

from course_utils import this_machine
from course_utils.cli import bootstrap
from tools.commands import pairs

ROOT = Path(__file__).parents[1]
CONDA_NAMES = {"torch": "pytorch", "playwright": "playwright-python"}


def differences(text: str) -> set[str]:
    """Return how an environment.yml differs from pyproject.toml."""
    content = yaml.safe_load(text)
    items = [Requirement(item) for item in content["dependencies"] if isinstance(item, str)]
    listed = {(item.name, item.specifier) for item in items if item.name != "pip"}
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    python = re.search(r'(?m)^requires-python = "(.*)"$', project)[1]
    items = [Requirement(item) for item in bootstrap.requirements(ROOT, "test")]
    wanted = {(CONDA_NAMES.get(item.name, item.name), item.specifier) for item in items}
    different = {name for name, _ in listed ^ (wanted | {("python", SpecifierSet(python))})}
    return different | set(content["channels"]) - {"conda-forge", "nodefaults"}


def test_conda_and_pip_list_the_same():
    assert differences((ROOT / "environment.yml").read_text(encoding="utf-8")) == set()


@pytest.mark.everywhere
def test_an_editable_install_is_the_clone_itself(tmp_path):
    """For who works on the course in an environment of their own: ``pip install -e ".[test]"``."""
    uv, python = (sys.executable, "-m", "uv"), bootstrap.venv_python(tmp_path / "own")
    subprocess.run([*uv, "venv", "-q", "--python", sys.executable, tmp_path / "own"], check=True)
    install = [*uv, "pip", "install", "-q", "--no-deps", "--python", python, "--editable"]
    subprocess.run([*install, f"{ROOT}[test]"], check=True)
    ask = "import course_utils as c, simgpu as s, tools as t\nfor m in c, s, t: print(m.__file__)"
    done = subprocess.run(
        [python, "-c", ask], cwd=tmp_path, check=True, capture_output=True, encoding="utf-8"
    )
    found = [Path(line).parents[1] for line in done.stdout.split("\n") if line]
    assert found == [ROOT] * 3


@pytest.mark.parametrize(
    ("old", "new", "different"),
    [
        ("  - pytorch>=2.10\n", "  - pytorch>=2.9\n", {"pytorch"}),
        ("  - pytorch>=2.10\n", "  - torch>=2.10\n", {"pytorch", "torch"}),
        ("  - tqdm>=4.65\n", "", {"tqdm"}),
        ("  - pip\n", "  - pip\n  - pandas\n", {"pandas"}),
        ("  - python>=3.10\n", "  - python>=3.9\n", {"python"}),
        ("  - conda-forge\n", "  - defaults\n  - conda-forge\n", {"defaults"}),
    ],
)
def test_a_drifted_conda_list_is_refused(old, new, different):
    text = (ROOT / "environment.yml").read_text(encoding="utf-8")
    assert old in text
    assert differences(text.replace(old, new, 1)) == different


PAIRS = pairs.all_pairs(ROOT)


def pins_of(pair: pairs.Pair) -> dict[str, str]:
    found = {}
    for line in pair.file.read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            line, _, sums = line.partition(" --hash=sha256:")
            pin = Requirement(line)
            hashed = re.match(r"[0-9a-f]{64}\b", sums) is not None
            builds = pin.name in ("torch", "torchvision")  # several of one version
            assert hashed != builds, f"{pin}: call tools.authoring.pair_hashes"
            (exact,) = pin.specifier
            assert exact.operator == "==", f"{pin} is no exact version"
            found[pin.name] = exact.version
    return found


@pytest.mark.parametrize("pair", PAIRS.values(), ids=PAIRS)
def test_a_pair_pins_every_direct_dependency_inside_its_range(pair):
    pinned = pins_of(pair)
    extra = "everywhere" if pair.name == "newest" else "test"
    for item in bootstrap.requirements(ROOT, extra):
        requirement = Requirement(item)
        assert requirement.name in pinned, f"{requirement.name} has no pin"
        assert requirement.specifier.contains(pinned[requirement.name]), f"{requirement} is not met"


def test_the_floor_is_a_pair_and_the_same_everywhere():
    torch = next(item for item in bootstrap.requirements(ROOT, "lab") if item.startswith("torch>="))
    floor = torch.removeprefix("torch>=")
    assert PAIRS["floor"].torch.startswith(f"torch=={floor}.")
    oldest = min((pair.python for pair in PAIRS.values()), key=Version)
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert PAIRS["floor"].python == oldest and f'requires-python = ">={oldest}"' in text
    assert tuple(map(int, floor.split("."))) == this_machine.OLDEST_TORCH
    assert f"PyTorch {floor} or newer" in (ROOT / "README.md").read_text(encoding="utf-8")
    newest = max((pair.torch for pair in PAIRS.values()), key=lambda torch: Version(torch[7:]))
    assert newest == PAIRS["newest"].torch


def test_readers_are_told_the_pythons_between_the_oldest_pair_and_the_newest():
    pythons = sorted((pair.python for pair in PAIRS.values()), key=Version)
    places = ("README.md", "site/index.md", "course_utils/cli/faults.py")
    for place in places:
        text = (ROOT / place).read_text(encoding="utf-8")
        assert f"Python {pythons[0]} to {pythons[-1]}" in text, place


def _pythons_of_the_readme() -> list[str]:
    found = re.search(r"Python 3\.(\d+) to 3\.(\d+)", (ROOT / "README.md").read_text("utf-8"))
    return [f"3.{minor}" for minor in range(int(found[1]), int(found[2]) + 1)]


def test_ci_runs_the_command_of_the_readme_with_nothing_pinned_and_on_each_pair():
    script = (ROOT / ".ci" / "run").read_text("utf-8")
    oldest, *_, newest = sorted(_pythons_of_the_readme(), key=Version)
    assert f"oldest=$(python_of {oldest})" in script and f"newest=$(python_of {newest} " in script
    assert '"$newest" -m course_utils test --torch torch\n' in script
    assert '"$oldest" -m course_utils test --quick --torch torch\n' in script
    calls = re.findall(r"(?m)^ *python3 -m course_utils test --pair (\S+)", script)
    assert sorted(name for call in calls for name in call.split(",")) == sorted(PAIRS)
    folder = ROOT / ".github" / "workflows"
    jobs = yaml.safe_load((folder / "tests.yml").read_text(encoding="utf-8"))["jobs"]
    words = [job["words"] for job in jobs["pairs"]["strategy"]["matrix"]["include"]]
    others = [f"--pair {name}" for name in set(PAIRS) - {"newest"}]
    assert sorted(words) == sorted(["--pair newest --full", "--pair newest --everywhere", *others])
    assert jobs["unpinned"]["steps"][-1]["run"] == "python -m course_utils test"
    weekly = yaml.safe_load((folder / "weekly.yml").read_text(encoding="utf-8"))["jobs"]["unpinned"]
    assert weekly["steps"][-1]["run"] == "python -m course_utils test"
    assert weekly["strategy"]["matrix"]["python"] == _pythons_of_the_readme()
    said = [(ROOT / page).read_text(encoding="utf-8") for page in ("README.md", "CONTRIBUTING.md")]
    assert all("`python3 -m course_utils test`" in text for text in said)
    assert "`python3 -m course_utils test --everywhere`" in said[1]
    assert "export CI=true" in (ROOT / ".ci" / "run").read_text(encoding="utf-8")


def test_the_lists_are_read_as_toml_reads_them():
    if sys.version_info < (3, 11):
        skip("Python 3.10 has no reader of TOML", until="2027-11-30")
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    assert bootstrap.requirements(ROOT, "lab") == [*project["dependencies"], *extras["lab"]]
    everything = {item for name in extras for item in extras[name] if "pytorch-gpu" not in item}
    found = bootstrap.requirements(ROOT, "everywhere")
    assert set(found) == everything | set(project["dependencies"])


# --- skips


def test_tests_skip_only_through_the_helper():
    names = "skip|skipif|xfail|importorskip|skipTest"
    bare = rf"(?m)^[^\"'#\n]*\b(pytest|unittest|self)\.(mark\.)?({names})\b"
    for path in (*ROOT.glob("tests/**/*.py"), *ROOT.glob("simgpu/tests/**/*.py")):
        if path.name != "support.py":
            assert not re.search(bare, path.read_text(encoding="utf-8")), path.name


@pytest.mark.parametrize(
    ("ci", "missing", "days", "outcome", "words"),
    [
        ("", False, 0, "Skipped", "no browser"),
        ("", False, -1, "Failed", "this skip ended"),
        ("", True, 0, "Skipped", "no browser"),
        ("true", True, 0, "Failed", "missing in CI"),
    ],
)
def test_a_skip_ends_and_what_is_missing_fails_in_ci(monkeypatch, ci, missing, days, outcome, words):
    monkeypatch.setenv("CI", ci)
    with pytest.raises(BaseException, match=words) as caught:
        skip("no browser", (date.today() + timedelta(days)).isoformat(), missing=missing)
    assert caught.typename == outcome
    with pytest.raises(ValueError, match="reason"):
        skip(" ", date.today().isoformat())
