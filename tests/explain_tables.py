"""How often `explain` is right, for messages as people paste them. Run ``python tests/explain_tables.py``.

Each row says how many questions there were, how many had the right entry first, how many among the three
that are found, how many had a wrong entry first, and how many found nothing. ``tests/test_errors.py`` holds
the goals.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import yaml

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

from course_utils.error_index import WRAPPERS, entries, find
from course_utils.error_words import normalize

CASES = yaml.safe_load(Path(__file__).with_name("explain_cases.yml").read_text(encoding="utf-8"))


def pairs(name: str) -> list[tuple[str, str]]:
    """Return the cases of a group: the title of the entry that should answer, and the message."""
    return [(case["entry"], case["said"]) for case in CASES[name]]


MESSAGES, CHINESE, CUDA = pairs("messages"), pairs("chinese"), pairs("cuda")
REPORTS, LATER = pairs("reports"), pairs("later")
FOREIGN, NO_ENTRY = CASES["foreign"], CASES["no_entry"]

CUDA_TAIL = """
CUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below might \
be incorrect.
For debugging consider passing CUDA_LAUNCH_BLOCKING=1
Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.
"""
CUDA_TAIL_NEW = (
    "\nSearch for `cudaErrorSomething' in https://docs.nvidia.com/cuda/ for more information." + CUDA_TAIL
)
CHILD_FAILED = """
E1128 10:00:00.000000 140 torch/distributed/elastic/multiprocessing/api.py:869] failed (exitcode: 1) \
local_rank: 0 (pid: 4242) of binary: /usr/bin/python
Traceback (most recent call last):
  File "/usr/local/bin/torchrun", line 8, in <module>
    sys.exit(main())
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
train.py FAILED
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  rank      : 0 (local_rank: 0)
  exitcode  : 1 (pid: 4242)
  error_file: <N/A>
  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html
============================================================
"""


def bare(message: str) -> str:
    """Return a message without the exception's name, as C++ code and loggers print it."""
    name, colon, rest = message.partition(": ")
    is_name = name.split(".")[-1].endswith(("Error", "Exception", "Warning", "Unsupported"))
    return rest if colon and is_name and " " not in name else message


NOISE: dict[str, Callable[[str], str]] = {
    "as it is": lambda m: m,
    "traceback": lambda m: (
        f'Traceback (most recent call last):\n  File "train.py", line 9, in <module>\n    main()\n{m}'
    ),
    "[rank0]": lambda m: (
        f'[rank0]: Traceback (most recent call last):\n[rank0]:   File "a.py", line 3\n[rank0]: {m}'
    ),
    "Ray": lambda m: f"(TrainActor pid=4242, ip=10.0.0.1) {m}",
    "CloudWatch": lambda m: f"2026-11-28T10:00:00.000Z stdout F {m}",
    "log prefix": lambda m: f"2026-11-28 10:00:00,123 - ERROR - trainer.py:88 - {m}",
    "rich box": lambda m: f"╭───── Traceback ─────╮\n│ train.py:9 in main │\n╰──────╯\n{m}",
    "quoted": lambda m: f"> {m}",
    "in backquotes": lambda m: f"```\n{m}\n```",
    "colours": lambda m: f"\x1b[31m{m}\x1b[0m",
    "capitals": lambda m: m.upper(),
    "small letters": lambda m: m.lower(),
    "English around": lambda m: f"Hi, I get this on my 3090, any idea?\n\n{m}\n\nThanks in advance",
    "Chinese around": lambda m: f"训练的时候报错：\n{m}\n请问怎么解决，谢谢",
    "cut": lambda m: m[: max(60, int(len(m) * 0.8))],
    "progress bar": lambda m: f"Epoch 3:  45%|████▌     | 120/266 [00:31<00:37, 3.9it/s, loss=0.31]\n{m}",
}
WRAPPED: dict[str, Callable[[str], str]] = {
    "ChildFailedError": lambda m: f"[rank0]: {m}\n{CHILD_FAILED}",
    "DataLoader worker": lambda m: (
        "RuntimeError: Caught RuntimeError in DataLoader worker process 1.\n"
        "Original Traceback (most recent call last):\n"
        f'  File "loop.py", line 3\n{m}'
    ),
    "C++ abort": lambda m: (
        f"terminate called after throwing an instance of 'c10::Error'\n  what():  {bare(m)}\n"
        "Exception raised from f at /pytorch/c10/a.cpp:43 (most recent call first):\n"
        "frame #0: c10::Error::Error(c10::SourceLocation) + 0x96 (0x7f1 in libc10.so)\nAborted (core dumped)"
    ),
    "log line": lambda m: f"ERROR trainer: step failed: {bare(m)} Saving.",
    "title": lambda m: f"[Bug]: training fails, {bare(m)}",
}


@dataclass
class Row:
    """Counts of right answers for one kind of question."""

    name: str
    asked: int = 0
    first: int = 0
    among: int = 0
    wrong: int = 0
    nothing: int = 0
    misses: list[str] = field(default_factory=list)

    def add(self, question: str, right: Iterable[str]) -> None:
        """Ask a question and count the answer; ``right`` are acceptable titles, empty for no match."""
        right, found = set(right), [entry.title for entry in find(question)]
        self.asked += 1
        good = found[:1] == [] if not right else bool(found) and found[0] in right
        self.first += good
        self.among += good or bool(right & set(found))
        self.nothing += not found
        self.wrong += bool(found) and not good
        if not good:
            self.misses.append(f"{question[:80]!r}: {found} for {sorted(right)}")

    def __str__(self) -> str:
        return f"{self.name:24}{self.asked:7}{self.first:7}{self.among:7}{self.wrong:7}{self.nothing:9}"


def own_messages() -> Iterator[tuple[str, set[str]]]:
    """Yield each entry's first message as printed, with the titles of all entries that it belongs to."""
    for entry in entries():
        message = entry.forms[0].replace("…", "0x7f 12").strip()
        if len(normalize(bare(message)).split()) >= 3:  # a shorter one needs its exception's name
            yield message, {entry.title}


def tables() -> list[list[Row]]:
    """Ask all questions and return the tables of counts."""
    noise = [Row(name) for name in NOISE]
    wrapped = [Row(name) for name in WRAPPED]
    around = {entry.title for entry in entries() if entry.anchor in WRAPPERS}
    for message, right in own_messages():
        for row, change in zip(noise, NOISE.values(), strict=True):
            row.add(change(message), right)
        if not right & around:
            for row, change in zip(wrapped, WRAPPED.values(), strict=True):
                row.add(change(message), right)
    cuda = [
        Row("CUDA error: bare"),
        Row("with its tail"),
        Row("newer tail"),
        Row("rank"),
        Row("abort"),
    ]
    for words, title in CUDA:
        said = f"RuntimeError: CUDA error: {words}"
        abort = "terminate called after throwing an instance of 'c10::Error'\n"
        abort += f"  what():  CUDA error: {words}{CUDA_TAIL}"
        new = said.replace("RuntimeError", "torch.AcceleratorError") + CUDA_TAIL_NEW
        for row, text in zip(
            cuda, (said, said + CUDA_TAIL, new, f"[rank0]: {said}{CUDA_TAIL}", abort), strict=True
        ):
            row.add(text, {title})
    asked = []
    lists = {"reports": MESSAGES, "tables of reports": REPORTS, "Chinese": CHINESE, "later": LATER}
    for name, cases in lists.items():
        row = Row(name)
        for title, text in cases:
            row.add(text, {title})
        asked.append(row)
    foreign = Row("without an entry")
    for text in (*FOREIGN, *NO_ENTRY):
        foreign.add(text, ())
    return [noise, wrapped, cuda, [*asked, foreign]]


if __name__ == "__main__":
    print(f"{'':24}{'asked':>7}{'first':>7}{'in 3':>7}{'wrong':>7}{'nothing':>9}")
    for table in tables():
        print()
        for row in table:
            print(row)
            if "--misses" in sys.argv:
                print(*(f"    {miss}" for miss in row.misses), sep="\n")
