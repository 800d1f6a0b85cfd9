"""The glossary: nothing of the course's words is unexplained, each entry is sound, and links lead there."""

import copy
import functools
import re
from dataclasses import dataclass

import nbformat
import pytest
from harness import LESSONS, NOTEBOOKS, ROOT

from course_utils.course import load_course
from tools.authoring import site
from tools.authoring.anatomy import without_code
from tools.authoring.form import read

COURSE = load_course()
PAGE = "handbook/glossary.md"
_ENTRY = re.compile(
    r'^<a id="([\w-]+)"></a>\n\*\*(.+?)\*\*(?:\s\(also:\s(.+?)\))?:\s(.+?)\s'
    r"(In\sdocumentation;\snearest:\s)?\[(\d\d)\]\(\.\./notebooks/[\w.]+\)$",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True)
class Entry:
    """A term of the glossary, and its other names; ``used`` is False if only documentation has it."""

    anchor: str
    names: tuple[str, ...]
    text: str
    lesson: str
    used: bool


def entries(page: str) -> list[Entry]:
    """Return the entries in the text of the glossary."""
    return [
        Entry(anchor, _names(f"{name},{also}"), " ".join(text.split()), lesson, not elsewhere)
        for anchor, name, also, text, elsewhere, lesson in _ENTRY.findall(page)
    ]


@functools.cache
def pattern(name: str) -> re.Pattern[str]:
    """Return a regular expression for a name: also its plural, and with ``_`` or ``-`` for a space.

    Case counts in a name with inner capitals, such as ZeRO.
    """
    words = r"[\s_-]".join(re.escape(word) for word in re.split(r"[\s_-]", name))
    case = 0 if any(c.isupper() for c in name[1:]) else re.IGNORECASE
    return re.compile(rf"(?<![\w-]){words}(?:e?s)?(?![\w-])", case)


def _names(text: str) -> tuple[str, ...]:
    return tuple(" ".join(n.split()) for n in text.replace("`", "").split(",") if n.strip())


TEXT = (ROOT / PAGE).read_text(encoding="utf-8")
ENTRIES = entries(TEXT)
NAMES = [name for entry in ENTRIES for name in entry.names]
NOTEBOOK = {lesson.id: read(NOTEBOOKS / lesson.file) for lesson in LESSONS}

NO_ENTRY = {
    "who trains on a CPU has met it": "CPU GPU GB MB PyTorch NumPy ReLU SGD CNN MNIST CIFAR FAQ JSON ASCII "
    "JupyterLab",
    "a maker's name": "AMD NVIDIA ARM",
    "the name of a product, which the sentence says": "EPYC RTX MI300X MI100 GB200 NVL72",
    "the name of a model that somebody published": "GPT BERT ResNet LLM",
    "the name of a program, with a link or what it does beside it": "TraceLens DCGM CUPTI",
    "the name of a schedule, which the sentence describes": "GPipe",
    "a person": "LeCun",
    "a multiple of FLOP": "TFLOP",
    "a multiple of byte": "TB",
}
"""Abbreviations and names with two capitals that need no entry, by the reason."""

FIELD = """
accelerator, activation, all-gather, all-reduce, all-to-all, allocated memory, arithmetic intensity,
asynchronous, attention, autocast, autograd, backend, bandwidth, bank conflict, batch norm,
bfloat16, broadcast, bubble, bucket, buffer, bus, caching allocator, causal attention, channels
last, checkpoint, checkpointing, clipping, collective, column-parallel, compute capability,
compute-bound, context parallel, crossover, data parallelism, device mesh, device-side assert,
distillation, dropout, dtype, early stopping, effective batch, embedding, eval mode, expandable
segments, expert parallelism, float16, float32, fragmentation, fused, gloo, gradient accumulation,
gradient checkpointing, gradient penalty, gradient scaler, graph break, half precision, no_data,
hook, hybrid sharding, inference mode, kernel, kernel fusion, latency, launch, launch-bound, layer
norm, linear scaling rule, local rank, logits, loss scaling, low-rank adaptation, mantissa, matrix
unit, memory-bound, micro-batch, mixed precision, momentum, non-blocking, occupancy, offloading,
overflow, overhead, page-locked, pageable, parameter server, peak memory, persistent workers, pinned
memory, pipeline, prefetching, process group, profiler, pruning, quantisation, quantization,
quartile, rank, recompilation, reduce-scatter, rendezvous, reserved memory, ridge, ring, roofline,
row-parallel, sampler, scheduler, segment, sequence parallel, shard, sharding, snapshot, sparsity,
stream, stride, strong scaling, subnormal, synchronise, tensor core, tensor parallelism, thermal
throttling, thread block, throughput, tied embedding, tile, token, torchrun, trace, train mode,
transformer, unified memory, view, vectorised, warm-up, warp, wave, weak scaling, wheel, worker,
workspace, world size, zero-copy
"""
"""The field's terms, of this course and of others: what of them a lesson uses has an entry."""

_TWO_CAPITALS = re.compile(r"(?<![\w])(?=[A-Za-z0-9]*[A-Z][A-Za-z0-9]*[A-Z])[A-Za-z0-9]+(?![\w])")


def prose(cell):
    """Return a Markdown cell's text without code, URLs and HTML; "" for a code cell."""
    if cell.cell_type != "markdown":
        return ""
    text = re.sub(r"<(code|pre)>.*?</\1>|<[^>]+>", " ", without_code(cell.source), flags=re.DOTALL)
    for _ in range(2):  # a badge is a picture in a link
        text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
    return text.replace("*", "")


def unexplained(nb):
    """Return the terms that a notebook uses and the glossary lacks, with their cells."""
    known = {name.lower() for name in NAMES}
    field = [term.strip() for term in FIELD.replace("\n", " ").split(",")]
    patterns = [(t, pattern(t)) for t in field if t.lower() not in known]
    explained = [pattern(name) for name in NAMES]
    free = set(" ".join(NO_ENTRY.values()).split())
    found = []
    for cell in nb.cells:
        text = prose(cell)
        found += [(term, cell.id) for term, pattern in patterns if pattern.search(text)]
        for name in NAMES:
            if any(c.isupper() for c in name[1:]):
                text = pattern(name).sub(" ", text)
        for word in sorted(set(_TWO_CAPITALS.findall(text))):
            known_word = {word, word.removesuffix("s")} & free
            if not known_word and not any(p.fullmatch(word) for p in explained):
                found.append((word, cell.id))
    return found


def occurs(entry, nb):
    """Return whether a notebook contains one of an entry's names, in prose or code."""
    text = "\n".join(cell.source for cell in nb.cells)
    text = re.sub(r"\]\([^)]*\)", "]", text).replace("*", "")
    return any(pattern(name).search(text) for name in entry.names)


# --- what the lessons say


@pytest.mark.parametrize("lesson", NOTEBOOK)
def test_every_term_of_a_lesson_is_explained(lesson):
    assert unexplained(NOTEBOOK[lesson]) == []


@pytest.mark.parametrize(
    ("text", "term"),
    [
        ("Then RDMA carries the gradients.", "RDMA"),
        ("A `kernel` of cuSOLVER runs.", "cuSOLVER"),
        ("Two NICs share it.", "NICs"),
        ("Weights are cut to four bits by *quantisation*.", "quantisation"),
        ("Its thread\nblocks are small.", "thread block"),
    ],
)
def test_a_new_term_is_named_with_its_cell(text, term):
    nb = copy.deepcopy(NOTEBOOK["02"])
    nb.cells.append(nbformat.v4.new_markdown_cell(text, id="planted"))
    assert unexplained(nb) == [(term, "planted")]


def test_each_reason_is_still_needed():
    said = "\n".join(prose(cell) for nb in NOTEBOOK.values() for cell in nb.cells)
    free = [word for words in NO_ENTRY.values() for word in words.split()]
    idle = [word for word in free if not re.search(rf"\b{word}s?\b", said)]
    assert idle == []
    assert not set(free) & set(NAMES)


# --- the entries


def test_every_anchor_of_the_page_begins_an_entry():
    assert [entry.anchor for entry in ENTRIES] == re.findall(r'<a id="([^"]*)"', TEXT)
    assert 120 <= len(ENTRIES) == len({entry.anchor for entry in ENTRIES})
    assert len(NAMES) == len({name.lower() for name in NAMES})


def test_terms_stand_in_alphabetical_order_below_their_letter():
    keys = [re.sub(r"[^a-z0-9]+", " ", entry.names[0].lower()).strip() for entry in ENTRIES]
    assert keys == sorted(keys)
    assert [entry.anchor for entry in ENTRIES] == [key.replace(" ", "-") for key in keys]
    letters = re.findall(r"^## (\w)$", TEXT, re.MULTILINE)
    assert letters == sorted({key[0].upper() for key in keys} - {"1"})
    for part in re.split(r"^## ", TEXT, flags=re.MULTILINE)[1:]:
        assert {anchor[0].upper() for anchor in re.findall(r'<a id="(.)', part)} == {part[0]}


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.anchor)
def test_an_entry_is_short_and_its_lesson_has_the_term(entry):
    sentences = re.split(r"(?<=[.!?])\s+(?=[A-Z`*])", re.sub(r"`[^`]*`", "x", entry.text))
    assert entry.text.endswith(".") and len(sentences) <= 3 and len(entry.text.split()) <= 40
    where = {lesson for lesson, nb in NOTEBOOK.items() if occurs(entry, nb)}
    if entry.used:
        assert entry.lesson in where
    else:
        assert not where, "a lesson uses it by now: name the lesson, without *In documentation*"


def test_a_lessons_number_and_its_link_agree():
    for number, file in re.findall(r"\[(\d\d)\]\(\.\./notebooks/([\w.]+)\)$", TEXT, re.MULTILINE):
        assert COURSE.lesson(number).file == file


def test_see_leads_to_an_entry():
    for term in re.findall(r"see \*([^*]+)\*", " ".join(TEXT.split())):
        assert term in NAMES


# --- the links


@pytest.mark.parametrize("lesson", NOTEBOOK)
def test_a_lesson_links_few_terms_each_once_and_none_that_it_builds_itself(lesson):
    builds = {entry.anchor: entry.lesson for entry in ENTRIES}
    linked = [
        re.findall(r"\]\(([^)]*)#([\w-]+)\)", cell.source)
        for cell in NOTEBOOK[lesson].cells
        if PAGE in cell.source
    ]
    linked = [[link for link in cell if link[0].endswith(PAGE)] for cell in linked]
    anchors = [anchor for cell in linked for _, anchor in cell]
    assert 3 <= len(anchors) == len(set(anchors)) <= 12
    assert max(map(len, linked)) <= 2
    assert [anchor for anchor in anchors if builds[anchor] == lesson] == []
    at, files = f"notebooks/{COURSE.lesson(lesson).file}", [one.file for one in LESSONS]
    for address, anchor in {link for cell in linked for link in cell}:
        assert address == COURSE.page(PAGE)
        page = site.page_text(COURSE, f"[x]({address}#{anchor})", at, files)
        assert page == f"[x]({PAGE}#{anchor})"
