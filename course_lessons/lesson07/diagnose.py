"""Read an out-of-memory message."""

import operator

from course_language import _
from course_lessons.shared import memory
from course_lessons.shared.edited import known_mistakes_of
from course_utils.exercises import Exercise
from course_utils.exercises.forms import ComparesToReference
from simgpu.allocator import format_size


def diagnose(message):
    found = memory.figures(message)
    within_reach = found["free"] + found["unallocated"]
    others = found["capacity"] - found["free"] - found["process"]
    if found["requested"] <= within_reach:
        return "fragmented"
    if found["requested"] <= within_reach + others:
        return "someone else"
    return "too large"


def _oom_message(requested, capacity, free, allocated, unallocated, context=300.0, others=0.0):
    """Return CUDA's out-of-memory message for these figures, in MiB; the rest is the driver's."""
    figures = requested, capacity, free, others, allocated + unallocated + context, allocated, unallocated
    sizes = [format_size(round(mib * 2**20)) for mib in figures]
    requested, capacity, free, theirs, own, allocated, unallocated = sizes
    process = f"Process 4100 has {theirs} memory in use. " if others else ""
    return (
        f"CUDA out of memory. Tried to allocate {requested}. GPU 0 has a total capacity of {capacity} "
        f"of which {free} is free. {process}Including non-PyTorch memory, this process has {own} memory "
        f"in use. Of the allocated memory {allocated} is allocated by PyTorch, and {unallocated} is "
        "reserved by PyTorch but unallocated. If reserved but unallocated memory is large try setting "
        "PYTORCH_ALLOC_CONF=expandable_segments:True to avoid fragmentation."
    )


_MESSAGES = (
    _oom_message(20480, 15360, 12288, 2560, 212),  # too large
    _oom_message(2048, 15360, 1024, 9728, 4308),  # fragmented
    _oom_message(512, 15360, 256, 14548, 256),  # fragmented
    _oom_message(0.5, 15360, 0.25, 15058.5, 1.25),  # fragmented
    _oom_message(4096, 15360, 512, 1024, 100, others=13424),  # someone else
    _oom_message(2048, 8192, 256, 5844, 0, others=1792),  # someone else
    _oom_message(1024, 15360, 512, 8192, 2260, others=4096),  # fragmented
    _oom_message(8192, 15360, 512, 10240, 212, others=4096),  # too large
    _oom_message(600, 15360, 100, 14650, 110, others=200),  # too large
)


def _random_case(rng):
    """Return the message of a card of less than 1 GiB, so that every figure is exact, as a case."""
    free, unallocated, others, allocated = (rng.choice((0, 50, 90, 150, 220)) for _ in range(4))
    reach = free + unallocated
    near = (reach, reach + others, free, unallocated, others, free + others)
    requested = max(rng.choice(near) + rng.choice((-10, 0, 0, 10)), 5)
    return (_oom_message(requested, reach + others + allocated, free, allocated, unallocated, 0, others),)


_REACH = 'found["free"] + found["unallocated"]'
_MISTAKES = {
    "half-the-reach": ({_REACH: 'found["free"]'}, {_REACH: 'found["unallocated"]'}),
    "allocated": {_REACH: 'found["free"] + found["allocated"]'},
}


def _validated_result(judge, got):
    """Return the result if it is one of the three texts, else refuse it."""
    known = ("too large", "fragmented", "someone else")
    if judge.is_a(got, str, _("one of the three texts")) not in known:
        judge.no(seen=got, expected=" / ".join(known))
    return got


def _describe_case(message):
    """Return the message's figures in words."""
    return _(
        "{requested} asked for, where of {capacity} are free {free}, this process has "
        "{process}, and of them {unallocated} unallocated"
    ).format(**{name: format_size(n) for name, n in memory.figures(message).items()})


_DIAGNOSES = {
    ("too large", "fragmented"): "not-enough",
    ("fragmented", "too large"): "enough-in-pieces",
    ("fragmented", "someone else"): "not-their-fault",
    ("someone else", "fragmented"): "not-enough",
}


EXERCISE = Exercise(
    id="07.diagnose",
    title="Read an out-of-memory message",
    level=1,
    minutes=8,
    task="""
`memory.figures(message)` gives the figures of an out-of-memory message in bytes: `"requested"`,
`"capacity"`, `"free"` (what nobody holds), `"process"` (what this process holds), and of that `"allocated"`
(tensors) and `"unallocated"` (reserved by PyTorch, and unused). Write `diagnose(message)`, which returns

- `"fragmented"` if the request is at most free + unallocated;
- else `"someone else"` if the request is at most free + unallocated + all that other processes hold;
- else `"too large"`.
""",
    hints=(
        "What could this process use for the request, if all of it were in one piece? It could use what "
        "nobody holds, and also what PyTorch has reserved and doesn't use. Add these up first.",
        "If that isn't enough, ask who has the rest. The message doesn't say directly what other processes "
        "hold, but you can work it out. It's the part of the capacity that's neither free nor held by this "
        "process. Ask the questions in the task's order, because the first that's true gives the answer. "
        'And mind the words: "no more than" includes an equal number.',
        """Here's another decision between three answers, from two sums of money:

```python
def pay(price, cash, savings):
    if price <= cash:
        return "cash"
    if price <= cash + savings:
        return "cash and savings"
    return "too dear"

print(pay(40, 40, 60), pay(100, 40, 60), pay(101, 40, 60), sep=", ")
```""",
    ),
    reference=diagnose,
    check_answer=ComparesToReference(
        diagnose,
        [(message,) for message in _MESSAGES],
        known_mistakes_of(diagnose, _MISTAKES),
        draw=_random_case,
        read=_validated_result,
        alike=operator.eq,
        otherwise=lambda got, right, message: _DIAGNOSES.get((right, got), "wrong-value"),
        situation=_describe_case,
        shown=repr,
    ),
    why="Each of the three needs its own fix. A smaller batch doesn't give you what another process holds, "
    "and `expandable_segments` neither shrinks a model that's too large nor closes holes between living "
    "tensors.",
    diagnoses={
        "half-the-reach": "What is free **and** what is unallocated counts, both together.",
        "allocated": "What is allocated is in use: tensors are in it. Idle is what is **unallocated**.",
        "not-enough": "Even all that is free and unallocated together is less than the request, so pieces "
        "are not the problem. The message gives the same advice every time.",
        "enough-in-pieces": "What is free and unallocated together is enough for the request. It failed "
        "because no single piece is.",
        "not-their-fault": "This process has enough bytes without those of others. Look at the pieces first.",
    },
)
