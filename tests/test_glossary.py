"""The glossary: nothing of the course's words is unexplained, each entry is sound, and first uses lead there."""

import copy
import re
from pathlib import Path

import nbformat
import pytest
from harness import LESSONS, NOTEBOOKS, ROOT

from course_utils.course import load_course
from tools.authoring import glossary, links, site
from tools.authoring.anatomy import without_code
from tools.authoring.form import read

COURSE = load_course()
TEXT = (ROOT / glossary.PAGE).read_text(encoding="utf-8")
ENTRIES = glossary.entries(TEXT)
NAMES = [name for entry in ENTRIES for name in entry.names]
NOTEBOOK = {lesson.id: read(NOTEBOOKS / lesson.file) for lesson in LESSONS}

NO_ENTRY = {
    "who trains on a CPU has met it": "CPU GPU GB MB PyTorch NumPy ReLU SGD CNN MNIST CIFAR FAQ JSON ASCII JupyterLab",
    "a maker's name": "AMD NVIDIA ARM",
    "the name of a product, which the sentence says": "EPYC RTX MI300X MI100 GB200 NVL72",
    "the name of a model that somebody published": "GPT BERT ResNet LLM",
    "the name of a program, with a link or what it does beside it": "HolisticTraceAnalysis TraceLens DCGM CUPTI",
    "the name of a schedule, which the sentence describes": "GPipe",
    "a person": "LeCun",
    "a multiple of FLOP": "TFLOP",
    "a multiple of byte": "TB",
}
"""Abbreviations and names with two capitals that need no entry, by the reason."""

FIELD = """
accelerator, activation, all-gather, all-reduce, all-to-all, allocated memory, arithmetic intensity, asynchronous,
attention, autocast, autograd, backend, bandwidth, bank conflict, batch norm, bfloat16, broadcast, bubble, bucket,
buffer, bus, caching allocator, causal attention, channels last, checkpoint, checkpointing, clipping, collective,
column-parallel, compute capability, compute-bound, context parallel, crossover, data parallelism, device mesh,
device-side assert, distillation, dropout, dtype, early stopping, effective batch, embedding, eval mode,
expandable segments, expert parallelism, float16, float32, fragmentation, fused, gloo, gradient accumulation,
gradient checkpointing, gradient penalty, gradient scaler, graph break, half precision, hollow, hook, hybrid sharding,
inference mode, kernel, kernel fusion, latency, launch, launch-bound, layer norm, linear scaling rule, local rank,
logits, loss scaling, low-rank adaptation, mantissa, matrix unit, memory-bound, micro-batch, mixed precision, momentum,
non-blocking, occupancy, offloading, overflow, overhead, page-locked, pageable, parameter server, peak memory,
persistent workers, pinned memory, pipeline, prefetching, process group, profiler, pruning, quantisation, quantization,
quartile, rank, recompilation, reduce-scatter, rendezvous, reserved memory, ridge, ring, roofline, row-parallel,
sampler, scheduler, segment, sequence parallel, shard, sharding, snapshot, sparsity, stream, stride, strong scaling,
subnormal, synchronise, tensor core, tensor parallelism, thermal throttling, thread block, throughput, tied embedding,
tile, token, torchrun, trace, train mode, transformer, unified memory, view, vectorised, warm-up, warp, wave,
weak scaling, wheel, worker, workspace, world size, zero-copy
"""
"""The field's terms, of this course and of others: what of them a lesson uses has an entry."""

_TWO_CAPITALS = re.compile(r"(?<![\w])(?=[A-Za-z0-9]*[A-Z][A-Za-z0-9]*[A-Z])[A-Za-z0-9]+(?![\w])")


def prose(cell):
    """Return what a cell says, without code, addresses and HTML; nothing of a code cell."""
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
    patterns = [(t, glossary.pattern(t)) for t in field if t.lower() not in known]
    explained = [glossary.pattern(name) for name in NAMES]
    free = set(" ".join(NO_ENTRY.values()).split())
    found = []
    for cell in nb.cells:
        text = prose(cell)
        found += [(term, cell.id) for term, pattern in patterns if pattern.search(text)]
        for name in NAMES:
            if any(c.isupper() for c in name[1:]):
                text = glossary.pattern(name).sub(" ", text)
        for word in sorted(set(_TWO_CAPITALS.findall(text))):
            known_word = {word, word.removesuffix("s")} & free
            if not known_word and not any(p.fullmatch(word) for p in explained):
                found.append((word, cell.id))
    return found


def occurs(entry, nb):
    """Say whether a notebook has one of an entry's names, in prose or code."""
    text = "\n".join(cell.source for cell in nb.cells)
    text = re.sub(r"\]\([^)]*\)", "]", text).replace("*", "")
    return any(glossary.pattern(name).search(text) for name in entry.names)


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


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda lesson: lesson.id)
def test_first_uses_have_their_links_and_no_word_changes(lesson):
    nb = NOTEBOOK[lesson.id]
    without = copy.deepcopy(nb)
    for cell in without.cells:
        cell.source = glossary.without_links(cell.source)
    assert glossary.linked(nb, COURSE, lesson) == glossary.linked(without, COURSE, lesson) == nb
    in_cells = [cell.source.count(f"{glossary.PAGE}#") for cell in nb.cells]
    assert 3 <= sum(in_cells) <= glossary.LINKED and max(in_cells) <= glossary.IN_A_CELL
    for old, new in zip(without.cells, nb.cells, strict=True):
        assert len(old.source.split()) == len(new.source.split())


def test_every_link_leads_to_an_entry_that_another_lesson_builds():
    builds = {entry.anchor: entry.lesson for entry in ENTRIES}
    pages = {f"notebooks/{lesson.file}" for lesson in LESSONS}
    for lesson, nb in NOTEBOOK.items():
        text = "\n".join(cell.source for cell in nb.cells)
        for target in re.findall(rf"\]\(([^)]*{glossary.PAGE}#[^)]*)\)", text):
            address, _, anchor = target.partition("#")
            assert builds[anchor] != lesson
            assert address == COURSE.page(glossary.PAGE)
            assert anchor in links.anchors(ROOT / glossary.PAGE)
            at = f"notebooks/{COURSE.lesson(lesson).file}"
            page = site.page_text(COURSE, f"[x]({target})", at, [Path(p).name for p in pages])
            assert page == f"[x]({glossary.PAGE}#{anchor})"


def example(*sources):
    cells = [nbformat.v4.new_markdown_cell(source) for source in sources]
    return nbformat.v4.new_notebook(cells=cells)


def written(*sources, lesson="03"):
    nb = glossary.linked(example(*sources), COURSE, COURSE.lesson(lesson))
    return [re.sub(r"\([^)#]*#", "(#", cell.source) for cell in nb.cells]


@pytest.mark.parametrize(
    "source",
    [
        *("# Pinned memory", "`pinned memory`", "```\npinned memory\n```", "| pinned memory | 3 |"),
        *("<b>\npinned memory</b>", "[pinned memory](x.md)", "<code>pinned memory</code> is"),
        *("$pinned memory$", "unpinned memory, pinned-memory-like", "a device and a stage"),
    ],
)
def test_what_is_no_prose_is_not_linked(source):
    assert written(source) == [source]


def test_the_longest_name_is_linked_once_and_its_own_lesson_does_not():
    text = "*Activation checkpointing* is no checkpoint; checkpointing costs time."
    name = "Activation checkpointing"
    assert written(text) == [text.replace(name, f"[{name}](#activation-checkpointing)")]
    own = text.replace("no checkpoint;", "no [checkpoint](#checkpoint);")
    assert written(text, lesson="06") == [own]


def test_terms_of_later_lessons_come_first_then_the_latest_and_no_cell_is_full_of_them():
    assert written("Pinned memory, a bus and a roofline.", lesson="00") == [
        "[Pinned memory](#pinned-memory), a [bus](#bus) and a roofline."
    ]
    assert written("A wheel's kernel, a bus, autocast, MFU.", lesson="05") == [
        "A wheel's kernel, a bus, [autocast](#autocast), [MFU](#mfu)."
    ]


def test_a_link_where_none_belongs_is_taken_away():
    nb = example(f"A [bus](https://example.org/{glossary.PAGE}#bus), and a bus.", "The bus")
    lesson = COURSE.lesson("01")
    without = [cell.source for cell in glossary.linked(nb, COURSE, lesson).cells]
    assert without == ["A bus, and a bus.", "The bus"]
