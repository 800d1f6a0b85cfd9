"""Numbers in prose: each one that speaks of performance has a mark that says where it is from.

A mark is an HTML comment in the same cell, ``<!-- 4.0×: recorded conv_step dtype=bfloat16 -->``; in a Python
or YAML file, whose texts end up in generated cells, it is a code comment. CONTRIBUTING.md says how to write
one.
"""

from __future__ import annotations

import ast
import html
import inspect
import itertools
import json
import math
import operator
import re
import shlex
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from nbformat import NotebookNode

from course_utils.cli.bootstrap import ROOT
from course_utils.course import Course, Lesson
from course_utils.exercises import Exercise
from course_utils.number_format import in_base
from tools.authoring.anatomy import without_code
from tools.authoring.form import Problem, cell_name, tags

KINDS = ("recorded", "modelled", "published", "claimed", "arithmetic", "setting")
PAGES = ("README.md",)
HELP = "CONTRIBUTING.md, Marking numbers, says how"

_RATE = r"(?:images|samples|tokens|steps|batches|digits|it)"
_UNIT = (
    r"×(?!\s*(?:\d|[a-z]\b))|(?<=\d)x|-?times\b|-?fold\b|%|percent\b|percentage points\b"
    r"|-?(?<!\d\d\d\d)(?:s|ms|[µμ]s|us|ns|min|h)\b"
    r"|-?(?:milli|micro|nano)?seconds?\b|-?minutes?\b|-?hours?\b"
    r"|[KMGT]i?B/s\b|[KMGT]i?B\b|[kKMGTP]?FLOPS?/s\b|[KMGTP]FLOPS\b"
    rf"|{_RATE}/s\b|{_RATE} (?:a|per) second\b"
)
_ONE = r"\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?"
_JOIN = r"\s*(?:–|—|-|,(?!\d)|,? ?\b(?:to|and|or)\b)\s*"
_BOUNDS = {
    **dict.fromkeys(("over", "more than", "above", "at least"), operator.ge),
    **dict.fromkeys(("under", "less than", "below", "at most"), operator.le),
}
_BOUND = "|".join(_BOUNDS)
_NUMBER = re.compile(
    rf"(?:\b(?P<bound>(?i:{_BOUND})) )?"
    rf"(?<![\w.,/#])(?P<digits>(?:{_ONE})(?:{_JOIN}(?:{_ONE}))*)[ \u00a0\u202f]?(?P<unit>{_UNIT})(?!\w)"
    rf"|\bfactor(?:s)?(?: of)? (?P<factor>(?:{_ONE})(?:{_JOIN}(?:{_ONE}))*)"
)
_MARK = re.compile(r"(?P<printed>[^:]*\d[^:]*):\s*(?P<kind>\w+)\b\s*(?P<rest>.*)")
_COMMENT = re.compile(r"<!--(.*?)-->", re.DOTALL)
_NO_PROSE = re.compile(
    r"<!--.*?-->|<pre\b.*?</pre>|<code\b.*?</code>|\$\$.*?\$\$|\$(?=\S)[^$\n]*?(?<=\S)\$(?!\d)"
    r"|(?<=\])\([^)\n]*\)|https?://\S+|</?[a-zA-Z][^>]*>|\b[A-Z]{1,4}\d{1,4} \d+GB\b",
    re.DOTALL,
)

_UNITS = {
    **dict.fromkeys(("x", "times", "fold"), "×"),
    **dict.fromkeys(("percent", "percentage points"), "%"),
    **dict.fromkeys(("second", "seconds"), "s"),
    **dict.fromkeys(("millisecond", "milliseconds"), "ms"),
    **dict.fromkeys(("microsecond", "microseconds", "us", "μs"), "µs"),
    **dict.fromkeys(("nanosecond", "nanoseconds"), "ns"),
    **dict.fromkeys(("minute", "minutes"), "min"),
    **dict.fromkeys(("hour", "hours"), "h"),
}


@dataclass(frozen=True)
class Number:
    """A number, a range or a list as it is printed, with its unit in the form that `in_base` knows."""

    text: str
    digits: tuple[str, ...]
    unit: str
    bound: str = ""

    def fits(self, candidates: Sequence[Sequence[float]]) -> bool:
        """Return whether one candidate rounds to the printed digits; for a bound, whether all keep it."""
        if self.bound:
            limit = float(self.digits[0])
            return all(_BOUNDS[self.bound](value, limit) for one in candidates for value in one)
        return any(
            len(values) == len(self.digits) and all(map(_rounds, values, self.digits))
            for values in candidates
        )


@dataclass(frozen=True)
class Mark:
    """What a writer says of a number: the numbers it is for, the kind, and what backs them."""

    printed: str
    kind: str
    rest: str

    @property
    def numbers(self) -> list[Number]:
        """The numbers in ``printed``."""
        return numbers(self.printed)


class _Unbacked(Exception):
    """The mark does not back its number; the message says what is wrong."""


def numbers(markdown: str) -> list[Number]:
    """Return the numbers with a unit of performance in a Markdown text, outside code, links and formulas.

    ``10 to 100 times`` and ``32, 64 and 128 GB/s`` are one number each.
    """
    found = []
    for match in _NUMBER.finditer(visible(markdown)):
        digits = match["digits"] or match["factor"]
        unit = (match["unit"] or "×").lstrip("-")
        bare = tuple(one.replace(",", "") for one in re.findall(_ONE, digits))
        text = re.sub(r"\s+", " ", match[0])
        found.append(Number(text, bare, _unit(unit), (match["bound"] or "").lower()))
    return found


def visible(markdown: str) -> str:
    """Return what a reader sees of a Markdown text as prose: no code, comments, addresses or formulas."""
    text = _NO_PROSE.sub(" ", without_code(_COMMENT.sub(" ", markdown)))
    return html.unescape(text).replace("*", "").replace("\\%", "%")


def _unit(written: str) -> str:
    if re.fullmatch(rf"{_RATE} (?:a|per) second", written):
        return f"{written.split()[0]}/s"
    if written.upper().endswith(("FLOPS", "FLOPS/S")):
        return f"{written[0]}FLOP/s"
    return _UNITS.get(written, written)


def marks(comments: Iterable[str]) -> list[Mark]:
    """Return the marks among HTML comments; a comment may hold several, one a line."""
    lines = [line.strip() for comment in comments for line in comment.splitlines()]
    found = [Mark(*match.groups()) for line in lines if (match := _MARK.fullmatch(line))]
    return [mark for mark in found if mark.kind in KINDS or mark.numbers]


def code_marks(path: Path) -> list[Mark]:
    """Return the marks among the comments of a Python or YAML file, each on one line."""
    lines = path.read_text(encoding="utf-8").splitlines()
    found = marks(line.partition("# ")[2] for line in lines)
    return [mark for mark in found if mark.kind in KINDS and mark.numbers]


def text_problems(texts: Iterable[str], given: Iterable[Mark]) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with the numbers of some texts and their marks, each with its remedy."""
    texts, given = list(texts), list(given)
    printed = [number for text in texts for number in numbers(text)]
    seen = {number.text for number in printed} | {_bare(number) for number in printed}
    marked = {number.text for mark in given for number in mark.numbers}
    for number in dict.fromkeys(printed):
        if not {number.text, _bare(number)} & marked:
            mend = (
                f"add <!-- {number.text}: KIND … -->, with KIND one of {', '.join(KINDS)}; {HELP}"
            )
            yield f"states {number.text} and does not say where that is from", mend
    for mark in given:
        name = f"the mark of {mark.printed}"
        absent = [number.text for number in mark.numbers if number.text not in seen]
        if not mark.numbers:
            yield (
                f"{name} holds no number with a unit",
                f"write the number as the text does; {HELP}",
            )
        elif absent:
            what = f"{name} stands where the text does not say {absent[0]}"
            yield what, "take it out, or write the number as the text does"
        else:
            try:
                _back(mark, _COMMENT.sub("", " ".join(texts)))
            except _Unbacked as problem:
                yield f"{name}: {problem}", "correct the text or the mark; never the record"


def _bare(number: Number) -> str:
    return number.text.removeprefix(f"{number.bound} ")


def number_problems(nb: NotebookNode, file: str) -> list[Problem]:
    """List the numbers in a lesson's hand-written prose that have no mark, or a wrong one."""
    return [
        Problem(file, cell_name(nb, i), *found)
        for i, cell in enumerate(nb.cells)
        if cell.cell_type == "markdown" and "generated" not in tags(cell)
        for found in text_problems([cell.source], marks(_COMMENT.findall(cell.source)))
    ]


def page_number_problems(course: Course) -> list[Problem]:
    """List the numbers without a good mark in README.md, paragraph by paragraph, and in course.yml."""
    found = []
    for page in PAGES:
        path = course.path.parent.parent / page
        if path.is_file():
            found += [
                Problem(page, "", f"line {line}: {what}", mend)
                for line, paragraph in _paragraphs(path.read_text(encoding="utf-8"))
                for what, mend in text_problems([paragraph], marks(_COMMENT.findall(paragraph)))
            ]
    texts = [t for one in course.lessons for t in (one.question, one.hardware, *one.objectives)]
    given = code_marks(course.path)
    return found + [Problem(course.path.name, "", *entry) for entry in text_problems(texts, given)]


def _paragraphs(page: str) -> Iterator[tuple[int, str]]:
    """Yield a page's paragraphs with their first line's number, without generated parts."""

    def lines_only(match: re.Match[str]) -> str:
        return "\n" * match[0].count("\n")

    own = re.sub(r"<!-- ([\w-]+):begin -->.*?<!-- \1:end -->", lines_only, page, flags=re.DOTALL)
    line = 1
    for paragraph in re.split(r"(\n\s*\n)", without_code(own)):
        yield line, paragraph
        line += paragraph.count("\n")


def exercise_number_problems(lesson: Lesson, exercises: Iterable[Exercise]) -> list[Problem]:
    """List the numbers without a good mark in the texts of a lesson's exercises."""
    texts: dict[Path, list[str]] = {}
    for one in exercises:
        path = Path(inspect.getfile(inspect.unwrap(one.reference)))
        said = [one.title, one.task, one.why, *one.hints, *one.diagnoses.values()]
        texts.setdefault(path, []).extend(said)
    return [
        Problem(f"exercises of {lesson.id} ({path.name})", "", *entry)
        for path, said in texts.items()
        for entry in text_problems(said, code_marks(path))
    ]


# --- what backs a number --------------------------------------------------------------------------


def _back(mark: Mark, text: str) -> None:
    if mark.kind == "setting":
        return
    if mark.kind == "published":
        _check_published(mark, text)
    elif mark.kind == "claimed":
        _check_claimed(mark, text)
    elif mark.kind == "arithmetic":
        values = [_evaluate(part) for part in mark.rest.split(",")]
        _compare(mark, [values])
    elif mark.kind in ("recorded", "modelled"):
        _compare(mark, _figures(mark))
    else:
        raise _Unbacked(f"{mark.kind} is none of {', '.join(KINDS)}")


def _compare(mark: Mark, candidates: list[list[float]]) -> None:
    """Refuse the mark unless one list of values, in its unit, is what it prints."""
    printed = mark.numbers
    whole = Number(mark.printed, tuple(d for n in printed for d in n.digits), printed[0].unit)
    if len(printed) == 1:
        whole = printed[0]
    if not whole.fits(candidates):
        shown = " or ".join(", ".join(f"{v:.6g}" for v in values) for values in candidates[:4])
        raise _Unbacked(f"it prints {mark.printed}, and {mark.kind} gives {shown} {whole.unit}")


def _rounds(value: float, digits: str) -> bool:
    places = len(digits.partition(".")[2])
    return abs(value - float(digits)) <= 0.5 * 10.0**-places * (1 + 1e-9)


def _figures(mark: Mark) -> list[list[float]]:
    """Return the lists of values that a mark's records allow it to print, in the printed unit.

    These are the medians; the quartiles of one record; the least and the greatest median of several.
    Where the mark leaves parameters open, a single number could be any of many: it is not allowed.
    """
    unit = mark.numbers[0].unit
    base, size = in_base(unit)
    if mark.rest.startswith("profile "):
        return [[_profile_figure(mark.rest, base) / size]]
    sides = [_records(side, mark.kind) for side in mark.rest.split(" / ")]
    quartiles: list[list[float]] = []
    if len(sides) == 1:
        wrong = [m.unit for m in sides[0] if m.unit != base]
        if wrong:
            raise _Unbacked(f"these records are in {wrong[0]}, not in {unit}")
        values = [m.median / size for m in sides[0]]
        quartiles = [[m.q1 / size, m.q3 / size] for m in sides[0]]
    elif len(sides) == 2 and base == "1":
        values = [
            a.median / b.median / size
            for a, b in itertools.product(*sides)
            if a.unit == b.unit and (a.device != b.device or a.machine == b.machine)
        ]
        if not values:
            raise _Unbacked("no two of these records are of one unit and one machine")
    else:
        raise _Unbacked(f"a ratio has two sides and a unit such as ×, not {unit}")
    spans = [[min(values), max(values)]] if len(values) > 1 else []
    several = [side for side in sides if any(m.parameters != side[0].parameters for m in side)]
    if several and len(mark.numbers[0].digits) == 1 and not mark.numbers[0].bound:
        first, *_, last = (
            ", ".join(f"{k}={v}" for k, v in m.parameters.items()) for m in several[0]
        )
        raise _Unbacked(f"several records fit, from {first} to {last}: say which")
    return [*([value] for value in values), *quartiles, *spans]


def _records(query: str, kind: str) -> list[Any]:
    """Return the records that ``EXPERIMENT key=value …`` names; refuse where there is none."""
    from course_utils.evidence import RecordError, recorded

    try:
        experiment, *pairs = shlex.split(query)
        wanted = {k: _value(v) for k, v in (pair.split("=", 1) for pair in pairs)}
    except ValueError:
        raise _Unbacked(f"'{query}' is not of the form EXPERIMENT key=value …") from None
    quantity = str(wanted.pop("quantity", "time"))
    device, machine = wanted.pop("device", None), wanted.pop("machine", None)
    try:
        found = recorded(experiment, quantity, **wanted)
    except RecordError as error:
        raise _Unbacked(str(error)) from None
    found = [
        m
        for m in found
        if m.kind == kind
        and (device is None or m.device.split(":")[0] == device)
        and (machine is None or str(machine).lower() in m.machine.lower())
    ]
    if not found:
        raise _Unbacked(f"nothing {kind} is known of '{query.strip()}'")
    return found


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return {"True": True, "False": False}.get(text, text)


@cache
def _profiles() -> dict[str, Any]:
    path = ROOT / "simgpu" / "profiles.json"
    return json.loads(path.read_text(encoding="utf-8"))["profiles"]


def _profile_figure(query: str, base: str) -> float:
    """Return a figure of a simulated GPU's model, for ``profile T4 bus_pinned``, in SI units."""
    try:
        _, profile, name = query.split()
        figure = _profiles()[profile]["figures"][name]
    except (ValueError, KeyError):
        raise _Unbacked(f"'{query}' names no figure of simgpu/profiles.json") from None
    if figure["unit"].replace("byte", "B") != base or figure["value"] is None:
        raise _Unbacked(f"that figure is {figure['value']} {figure['unit']}")
    return figure["value"]


def _check_claimed(mark: Mark, text: str) -> None:
    from course_lessons.shared.claims import CLAIMS

    claim = next((one for one in CLAIMS if one.id == mark.rest), None)
    if claim is None:
        raise _Unbacked(f"claims.md has no claim '{mark.rest}'")
    said = re.findall(_ONE, f"{claim.text} {claim.quote} {claim.claimed}")
    strange = [digits for number in mark.numbers for digits in number.digits if digits not in said]
    if strange:
        raise _Unbacked(f"that claim says '{claim.text}', and nothing of {strange[0]}")
    if "claim" not in text.lower():
        raise _Unbacked("the text itself does not say that this is a claim")


def _check_published(mark: Mark, text: str) -> None:
    address = re.search(r"https?://\S+", mark.rest)
    if not mark.rest:
        raise _Unbacked("it names no source")
    if not address and not any(mark.rest.lower() in title.lower() for title in _titles()):
        raise _Unbacked(f"no source in recorded/ is called '{mark.rest}', and it gives no address")
    named = bool(address) and address[0].rstrip(".,;)") in text
    if not named and mark.rest.lower() not in text.lower() and "published" not in text.lower():
        raise _Unbacked("the text itself neither says published nor names the source")


@cache
def _titles() -> frozenset[str]:
    """The titles of all sources in ``recorded/``."""
    found: set[str] = set()

    def collect(value: Any) -> None:
        if isinstance(value, dict):
            source = value.get("source")
            if source:
                found.add(source if isinstance(source, str) else source.get("title", ""))
            for inner in value.values():
                collect(inner)
        elif isinstance(value, list):
            for inner in value:
                collect(inner)

    for path in sorted((ROOT / "course_lessons" / "recorded").glob("published*.json")):
        collect(json.loads(path.read_text(encoding="utf-8")))
    return frozenset(found)


_OPERATORS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
    ast.USub: operator.neg,
}


def _evaluate(expression: str) -> float:
    """Compute an expression of numbers and ``+ - * / // % **``; nothing else is run."""

    def value(node: ast.AST) -> float:
        match node:
            case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
                return number
            case ast.UnaryOp(op=ast.USub(), operand=inner):
                return -value(inner)
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
                a, b = value(left), value(right)
                if isinstance(op, ast.Pow) and (abs(b) > 400 or abs(a) > sys.maxsize):
                    raise _Unbacked("its power is too large")
                return _OPERATORS[type(op)](a, b)
        raise _Unbacked(f"'{expression.strip()}' is not plain arithmetic")

    try:
        result = float(value(ast.parse(expression.strip(), mode="eval").body))
    except SyntaxError:
        raise _Unbacked(f"'{expression.strip()}' is not plain arithmetic") from None
    except (ArithmeticError, TypeError, RecursionError) as error:
        raise _Unbacked(f"'{expression.strip()}' cannot be computed: {error}") from None
    if not math.isfinite(result):
        raise _Unbacked(f"'{expression.strip()}' is not finite")
    return result
