"""The lists of dependencies agree, and the suite keeps its own rules."""

from __future__ import annotations

import ast
import re
from datetime import date, timedelta
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from support import skip

from course_utils.cli import bootstrap

ROOT = Path(__file__).parents[1]
CONDA_NAMES = {"torch": "pytorch", "playwright": "playwright-python"}


def wanted() -> dict[str, SpecifierSet]:
    found = [Requirement(item) for item in bootstrap.requirements(ROOT, "test")]
    return {CONDA_NAMES.get(item.name, item.name): item.specifier for item in found}


def conda(text: str) -> tuple[dict[str, SpecifierSet], dict]:
    """Return what an environment.yml lists, and the rest of it."""
    content = yaml.safe_load(text)
    specs = [Requirement(item) for item in content["dependencies"] if isinstance(item, str)]
    return {item.name: item.specifier for item in specs}, content


def differences(text: str) -> list[str]:
    listed, content = conda(text)
    python = listed.pop("python", None)
    project = bootstrap._read_toml(ROOT / "pyproject.toml", None)["project"]
    listed.pop("pip", None)
    core = wanted()
    problems = [f"{name} is missing" for name in core.keys() - listed.keys()]
    problems += [f"{name} is extra" for name in listed.keys() - core.keys()]
    shared = core.keys() & listed.keys()
    problems += [f"{name} differs" for name in shared if core[name] != listed[name]]
    if python != SpecifierSet(project["requires-python"]):
        problems.append("python differs")
    if [name for name in content["channels"] if name != "nodefaults"] != ["conda-forge"]:
        problems.append("a channel other than conda-forge")
    return sorted(problems)


def test_conda_and_pip_list_the_same():
    assert differences((ROOT / "environment.yml").read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("  - pytorch>=2.6\n", "  - pytorch>=2.5\n", "pytorch differs"),
        ("  - pytorch>=2.6\n", "  - torch>=2.6\n", "pytorch is missing"),
        ("  - tqdm>=4.65\n", "", "tqdm is missing"),
        ("  - pip\n", "  - pip\n  - pandas\n", "pandas is extra"),
        ("  - jupyterlab>=4.2,<5\n", "  - jupyterlab>=4.2\n", "jupyterlab differs"),
        ("  - python>=3.10\n", "  - python>=3.9\n", "python differs"),
        ("  - conda-forge\n", "  - pytorch\n  - conda-forge\n", "a channel other than conda-forge"),
    ],
)
def test_a_drifted_conda_list_is_refused(old, new, problem):
    text = (ROOT / "environment.yml").read_text(encoding="utf-8")
    assert old in text
    assert problem in differences(text.replace(old, new, 1))


def test_ci_pins_every_direct_dependency_inside_its_range():
    lines = (ROOT / ".ci" / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = [Requirement(line) for line in lines if line and not line.startswith("#")]
    pinned = {}
    for pin in pins:
        (exact,) = pin.specifier
        assert exact.operator == "==", f"{pin} is no exact version"
        pinned[pin.name] = exact.version
    for item in bootstrap.requirements(ROOT, "test"):
        requirement = Requirement(item)
        assert requirement.name in pinned, f"{requirement.name} has no pin"
        assert requirement.specifier.contains(pinned[requirement.name]), f"{requirement} is not met"


def test_ci_calls_the_commands_of_the_readme():
    text = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    calls = ["python3 -m course_utils test", "python3 -m course_utils test --everywhere"]
    assert text.rstrip().splitlines()[-2:] == calls
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert all(f"\n{call}\n" in readme or f"`{call}`" in readme for call in calls)
    for line in ("export CI=true", "COURSE_CONSTRAINTS", "COURSE_TORCH=torch==2.13.0"):
        assert line in text


def test_requirements_include_an_extra_that_an_extra_names():
    lab, test = (bootstrap.requirements(ROOT, extra) for extra in ("lab", "test"))
    assert set(lab) < set(test)
    assert "torch" in map(bootstrap.name_of, lab)
    assert not [item for item in test if "pytorch-gpu-course" in item]


# ---------------------------------------------------------------------------------------------------
# Skips


def raw_skips(source: str) -> list[int]:
    """Return the lines that skip a test in a way that needs no end date."""
    names = {"skip", "skipif", "xfail", "importorskip"}
    return [
        node.lineno
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Attribute)
        and node.attr in names
        and re.match(r"(pytest|unittest|self)\b", ast.unparse(node))
    ]


def test_tests_skip_only_through_the_helper():
    for path in (ROOT / "tests").rglob("*.py"):
        lines = raw_skips(path.read_text(encoding="utf-8"))
        assert path.name == "support.py" or not lines, f"{path.name}: {lines}"


@pytest.mark.parametrize("call", ["pytest.skip('x')", "@pytest.mark.xfail\ndef f(): pass"])
def test_a_bare_skip_is_found(call):
    assert raw_skips("import pytest\n" + call)


def test_a_skip_ends(monkeypatch):
    today = date.today()
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(BaseException, match="no Windows here") as caught:
        skip("no Windows here", today.isoformat())
    assert caught.typename == "Skipped"
    with pytest.raises(BaseException, match="this skip ended") as caught:
        skip("no Windows here", (today - timedelta(days=1)).isoformat())
    assert caught.typename == "Failed"


def test_what_is_missing_is_a_failure_in_ci_only(monkeypatch):
    today = date.today().isoformat()
    monkeypatch.setenv("CI", "true")
    with pytest.raises(BaseException, match="missing in CI") as caught:
        skip("no browser", today, missing=True)
    assert caught.typename == "Failed"
    monkeypatch.setenv("CI", "")
    with pytest.raises(BaseException, match="no browser") as caught:
        skip("no browser", today, missing=True)
    assert caught.typename == "Skipped"
    with pytest.raises(ValueError, match="reason"):
        skip(" ", today)
