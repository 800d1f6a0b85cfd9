"""Numbers in prose: which are found, what backs them, and that the checker bites."""

import time

import nbformat
import pytest
from nbformat.v4 import new_markdown_cell, new_notebook

from course_utils import evidence
from course_utils.course import load_course
from course_utils.exercises import lesson
from course_utils.timing import Measurement
from tools.authoring import numbers as checker
from tools.authoring.numbers import marks, numbers, text_problems
from tools.commands import notebooks


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("It is 4.0× as fast.", ["4.0×"]),
        ("It is **4×** as fast, or 3x.", ["4×", "3x"]),
        ("10 to 100 times faster", ["10 to 100 times"]),
        ("10–100 times faster", ["10–100 times"]),
        ("30 to 50 % less, by a factor of 8", ["30 to 50 %", "factor of 8"]),
        ("32, 64 and 128 GB/s over PCIe", ["32, 64 and 128 GB/s"]),
        ("over 97 % of them, under 1.5 s", ["over 97 %", "under 1.5 s"]),
        ("28,399 tokens/s, 5 images a second", ["28,399 tokens/s", "5 images a second"]),
        (
            "5 ms, 3 µs, 7 ns, 5 seconds, 2 minutes",
            ["5 ms", "3 µs", "7 ns", "5 seconds", "2 minutes"],
        ),
        ("a 5-minute run", ["5-minute"]),
        ("| CPU | 4.1 ms |\n|---|---|\n| GPU | 80GB |", ["4.1 ms", "80GB"]),
        ("65 TFLOP/s, 65 TFLOPS, 12 MiB, 16 GB", ["65 TFLOP/s", "65 TFLOPS", "12 MiB", "16 GB"]),
        ("[it took 5 s](https://example.org/9%20s)", ["5 s"]),
        # no performance, or no prose
        ("a 2048 × 2048 matrix, 3 × n, 16 × 16, 784 x 10", []),
        ("four times as fast, twice the memory", []),
        ("`4 s` and ``5 ms``\n\n```\n6 s\n```\n\n$7 s$ and $$8 s$$", []),
        ("<!-- 5 s: setting --> <pre>5 s</pre> <code>5 s</code> <img alt='5 s'>", []),
        ("an A100 80GB, a T4 x2, fp16, bf16, lesson 03, 16 bits, 10,000 digits, 12 bytes", []),
        ("in the 1980s, version 2.6, [issue 5](https://x.org/5%s)", []),
    ],
)
def test_what_counts_as_a_number(text, found):
    assert [number.text for number in numbers(text)] == found


def problems(text):
    given = marks(checker._COMMENT.findall(text))
    return [f"{what} -> {mend}" for what, mend in text_problems([text], given)]


def m(median, unit="s", device="cpu", machine="a CPU", kind="recorded", **parameters):
    spread = (0.9 * median, 1.1 * median)
    extra = {"experiment": "conv_step", "parameters": parameters}
    return Measurement(
        "x", median, *spread, 9, device, machine, "2", 2, "2026-11-21", kind, unit, **extra
    )


@pytest.fixture
def _records(monkeypatch):
    """A convolution in four precisions on a CPU, and one on a GPU; and its modelled time."""
    known = [
        m(0.0401, precision="fp32"),
        m(0.0101, precision="bf16"),
        m(0.002, device="cuda:0", machine="NVIDIA H200", precision="fp32"),
        m(3 * 2**20, "B", precision="int8"),
        m(0.123, precision="modelled", kind="modelled"),
    ]

    def recorded(experiment, quantity="time", **parameters):
        return [
            r
            for r in known
            if experiment == "conv_step"
            and (quantity == "peak memory") == (r.unit == "B")
            and all(r.parameters.get(k) == v for k, v in parameters.items())
        ]

    monkeypatch.setattr(evidence, "recorded", recorded)


GOOD = [
    "It is 4.0× as fast. <!-- 4.0×: recorded conv_step precision=fp32 device=cpu / conv_step precision=bf16 -->",
    "Four: 4 times. <!-- 4 times: recorded conv_step precision=fp32 device=cpu / conv_step precision=bf16 -->",
    "20.1× <!-- 20.1×: recorded conv_step precision=fp32 device=cpu / conv_step precision=fp32 machine=H200 -->".replace(
        "20.1", "20"
    ),
    "It takes 10 ms, or 10.1 ms. <!-- 10 ms, 10.1 ms: setting -->",
    "It takes 10.1 ms. <!-- 10.1 ms: recorded conv_step precision=bf16 -->",
    "It takes 0.0101 s. <!-- 0.0101 s: recorded conv_step precision=bf16 -->",
    "It takes 9.1 to 11.1 ms. <!-- 9.1 to 11.1 ms: recorded conv_step precision=bf16 -->",
    "It takes 10.1 to 40.1 ms. <!-- 10.1 to 40.1 ms: recorded conv_step device=cpu -->",
    "It takes under 50 ms. <!-- under 50 ms: recorded conv_step -->",
    "It takes 3 MiB. <!-- 3 MiB: recorded conv_step precision=int8 quantity='peak memory' -->",
    "It takes 123 ms (modelled). <!-- 123 ms: modelled conv_step precision=modelled -->",
    "A T4's bus does 12.15 GB/s here. <!-- 12.15 GB/s: modelled profile T4 bus_pinned -->",
    "It is 64 MiB. <!-- 64 MiB: arithmetic 16 * 2**20 * 4 / 2**20 -->",
    "32, 64 and 128 GB/s <!-- 32, 64 and 128 GB/s: arithmetic 2**5, 2 * 32, 256 // 2 -->",
    "0.01 % <!-- 0.01 %: arithmetic 100 * (28402 / 28399 - 1) -->",
    "65 TFLOP/s (published) <!-- 65 TFLOP/s: published NVIDIA T4 Tensor Core GPU datasheet -->",
    "65 TFLOP/s, says [it](https://x.org/a). <!-- 65 TFLOP/s: published https://x.org/a -->",
    "Claimed: 10 to 100 times. <!-- 10 to 100 times: claimed gpu-speed -->",
    "2 s and 5 s, twice 2 s.\n\n<!--\n2 s: setting\n5 s: arithmetic 10 / 2\n-->",
    "No number. <!-- course-map:begin --> <!-- a note: recorded by hand -->",
]


@pytest.mark.usefixtures("_records")
@pytest.mark.parametrize("text", GOOD)
def test_a_backed_number_passes(text):
    assert problems(text) == []


FAULTS = [
    (
        "It is 4.0× as fast.",
        "states 4.0× and does not say where that is from -> add <!-- 4.0×: KIND",
    ),
    ("4.0× and 5.0× <!-- 4.0×: setting -->", "states 5.0×"),
    ("It is fast. <!-- 4.0×: setting -->", "stands where the text does not say 4.0×"),
    ("It is 4× as fast. <!-- 4.0×: setting -->", "states 4×"),
    ("It is 4×. <!-- 4×: recoded conv_step -->", "recoded is none of recorded, modelled"),
    ("It is 4×. <!-- 4: setting -->", "holds no number with a unit"),
    ("5 ms <!-- 5 ms: recorded conv_steps -->", "nothing recorded is known of 'conv_steps'"),
    ("5 ms <!-- 5 ms: recorded conv_step precision=fp8 -->", "nothing recorded is known"),
    ("5 ms <!-- 5 ms: recorded conv_step precision -->", "not of the form EXPERIMENT key=value"),
    ("5 ms <!-- 5 ms: recorded -->", "not of the form EXPERIMENT key=value"),
    ("10.2 ms <!-- 10.2 ms: recorded conv_step precision=bf16 -->", "recorded gives 10.1"),
    ("10.10 s <!-- 10.10 s: recorded conv_step precision=bf16 -->", "recorded gives 0.0101"),
    ("10 MiB <!-- 10 MiB: recorded conv_step precision=bf16 -->", "are in s, not in MiB"),
    ("40.1 ms <!-- 40.1 ms: recorded conv_step -->", "say which"),
    ("123 ms <!-- 123 ms: recorded conv_step precision=modelled -->", "nothing recorded is known"),
    ("10.1 ms <!-- 10.1 ms: modelled conv_step precision=bf16 -->", "nothing modelled is known"),
    ("9.2 to 11 ms <!-- 9.2 to 11 ms: recorded conv_step precision=bf16 -->", "recorded gives"),
    ("under 30 ms <!-- under 30 ms: recorded conv_step -->", "recorded gives"),
    (
        "4 ms <!-- 4 ms: recorded conv_step precision=fp32 / conv_step precision=bf16 -->",
        "a ratio has",
    ),
    (
        "5× <!-- 5×: recorded conv_step precision=fp32 device=cpu / conv_step precision=bf16 -->",
        "recorded gives 3.97",
    ),
    ("5 GB/s <!-- 5 GB/s: modelled profile T4 bus_pinned -->", "modelled gives 12.15"),
    ("5 GB/s <!-- 5 GB/s: modelled profile T4 bus -->", "names no figure of simgpu/profiles.json"),
    ("5 ms <!-- 5 ms: modelled profile T4 bus_pinned -->", "that figure is"),
    ("65 MiB <!-- 65 MiB: arithmetic 16 * 2**20 * 4 / 2**20 -->", "arithmetic gives 64 MiB"),
    ("2 and 3 s <!-- 2 and 3 s: arithmetic 2 -->", "arithmetic gives 2 s"),
    ("1 s <!-- 1 s: arithmetic __import__('os').getpid() -->", "not plain arithmetic"),
    ("1 s <!-- 1 s: arithmetic True -->", "not plain arithmetic"),
    ("1 s <!-- 1 s: arithmetic 1 + -->", "not plain arithmetic"),
    ("1 s <!-- 1 s: arithmetic 1 / 0 -->", "cannot be computed"),
    ("1 s <!-- 1 s: arithmetic 9**9**9**9 -->", "its power is too large"),
    ("1 s <!-- 1 s: arithmetic -->", "not plain arithmetic"),
    ("A claim: 30 times. <!-- 30 times: claimed gpu-speed -->", "and nothing of 30"),
    ("A claim: 10 times. <!-- 10 times: claimed gpu-sped -->", "claims.md has no claim 'gpu-sped'"),
    ("It is 10 times. <!-- 10 times: claimed gpu-speed -->", "does not say that this is a claim"),
    ("5 TFLOP/s (published) <!-- 5 TFLOP/s: published A thin rumour -->", "no source in recorded/"),
    ("5 TFLOP/s (published) <!-- 5 TFLOP/s: published -->", "it names no source"),
    (
        "65 TFLOP/s. <!-- 65 TFLOP/s: published NVIDIA T4 Tensor Core GPU datasheet -->",
        "neither says published nor names the source",
    ),
    ("65 TFLOP/s. <!-- 65 TFLOP/s: published https://x.org/a -->", "neither says published"),
]


@pytest.mark.usefixtures("_records")
@pytest.mark.parametrize(("text", "says"), FAULTS)
def test_a_fault_is_found(text, says):
    found = problems(text)
    assert found and any(says in problem for problem in found), found


def test_a_shipped_record_backs_its_number_and_no_other():
    """The mark's form and that of the real files fit together."""
    record = next(r for r in evidence.recorded("matmul") if r.kind == "recorded")
    parameters = " ".join(f"{k}={v}" for k, v in record.parameters.items())
    ms = f"{1e3 * record.median:.4f}"
    other = f"{1e3 * record.median * 1.5:.4f}"
    mark = f"recorded matmul {parameters} device={record.device}"
    assert problems(f"{ms} ms <!-- {ms} ms: {mark} -->") == []
    assert "recorded gives" in problems(f"{other} ms <!-- {other} ms: {mark} -->")[0]


def test_a_problem_names_file_and_cell_and_generated_cells_are_left_out():
    nb = new_notebook(
        cells=[
            new_markdown_cell("5 s", id="one"),
            new_markdown_cell("5 s", id="header", metadata={"tags": ["generated"]}),
        ]
    )
    (problem,) = checker.number_problems(nb, "04_x.ipynb")
    assert str(problem).startswith("04_x.ipynb: cell one: states 5 s")


@pytest.fixture
def tiny(tmp_path):
    import shutil
    from pathlib import Path

    source = Path(__file__).parent / "fixtures" / "tiny_course"
    shutil.copytree(source, tmp_path / "course", ignore=shutil.ignore_patterns(".*"))
    return load_course(tmp_path / "course" / "notebooks" / "course.yml")


def test_the_command_finds_planted_numbers_in_page_map_and_lesson(tiny, capsys):
    from fixtures.tiny_exercises import EXERCISES

    def check():
        course = load_course(tiny.path)
        code = notebooks.check(course, (), lambda _: EXERCISES)
        return code, capsys.readouterr().out

    assert check()[0] == 0
    readme = tiny.path.parent.parent / "README.md"
    text = readme.read_text(encoding="utf-8")
    readme.write_text(text + "\n\nNew.\n\nIt is 7× as fast.\n", encoding="utf-8")
    line = text.count("\n") + 5
    path = next(tiny.path.parent.glob("*.ipynb"))
    nb = nbformat.read(path, as_version=4)
    why = next(cell for cell in nb.cells if cell.get("id") == "why")
    why.source += " It takes 9 ms."
    path.write_text(nbformat.v4.writes(nb) + "\n", encoding="utf-8")
    yml = tiny.path.read_text(encoding="utf-8")
    tiny.path.write_text(yml.replace("Any machine.", "Any machine, 3 s."), encoding="utf-8")
    code, out = check()
    assert code == 1
    assert f"README.md: line {line}: states 7×" in out
    assert "cell why: states 9 ms" in out
    assert "course.yml: states 3 s" in out


def test_texts_of_exercises_are_checked_where_they_are_written(monkeypatch):
    course = load_course()
    one = course.lesson("01")
    exercises = list(lesson("01"))
    assert checker.exercise_number_problems(one, exercises) == []
    monkeypatch.setattr(checker, "code_marks", lambda path: [])
    found = checker.exercise_number_problems(one, exercises)
    assert any("speedup.py" in str(p) and "states 6 s" in str(p) for p in found)


def test_all_lessons_take_less_than_a_second():
    course = load_course()
    paths = [course.path.parent / one.file for one in course.ready]
    books = [nbformat.read(path, as_version=4) for path in paths if path.exists()]
    evidence.recorded("matmul")
    start = time.perf_counter()
    for nb in books:
        checker.number_problems(nb, "x")
    checker.page_number_problems(course)
    assert time.perf_counter() - start < 1
    assert sum(len(numbers(cell.source)) for nb in books for cell in nb.cells) > 10


def test_pages_and_exercises_on_disk_have_no_problem():
    course = load_course()
    found = checker.page_number_problems(course)
    for one in course.ready:
        found += checker.exercise_number_problems(one, lesson(one.id))
    assert not found, "\n".join(map(str, found))
