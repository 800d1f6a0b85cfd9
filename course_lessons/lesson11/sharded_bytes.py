"""What sharding saves."""

import math

from course_language import _
from course_lessons.shared.edited import known_mistakes_of
from course_utils.exercises import Exercise
from course_utils.exercises.forms import ComparesToReference
from course_utils.exercises.values import brief, nearly


def sharded_bytes(shapes, ranks):
    whole = sum(math.prod(shape) for shape in shapes)
    part = sum(math.ceil(shape[0] / ranks) * math.prod(shape[1:]) for shape in shapes)
    return 16 * whole, 16 * part


_SHAPES = (
    [(64, 32), (64,)],
    [(10, 20), (10,), (3, 10), (3,)],
    [(2, 5, 3, 3), (2,), (9,)],
    [],
)


def _random_case(rng):
    """Return random ``(shapes, ranks)``: 1 to 3 shapes of 1 to 4 dimensions, on 2 to 8 ranks."""
    shapes = [tuple(rng.randint(1, 12) for _ in range(rng.randint(1, 4))) for _ in range(rng.randint(1, 3))]
    return shapes, rng.randint(2, 8)


_PIECE, _BOTH = "math.ceil(shape[0] / ranks) * math.prod(shape[1:])", "16 * whole, 16 * part"
_MISTAKES = {
    "fewer-numbers": tuple({_BOTH: f"{kept} * whole, {kept} * part"} for kept in (4, 12)),
    "divided": (
        {_PIECE: "math.prod(shape) / ranks"},
        {_PIECE: "math.ceil(math.prod(shape) / ranks)"},
    ),
    "floor": {_PIECE: "(shape[0] // ranks) * math.prod(shape[1:])"},
    "still-whole": (
        {_BOTH: "16 * whole, 8 * whole + 8 * part"},
        {_BOTH: "16 * whole, 12 * whole + 4 * part"},
    ),
    "ddp-divided": {_BOTH: "16 * part, 16 * part"},
}


def _validated_result(judge, pair):
    """Return the two numbers as a tuple of floats, or refuse the result."""
    judge.is_a(pair, (tuple, list), _("a pair of numbers of bytes"))
    if len(pair) != 2:
        judge.no(seen=pair, expected=_("bytes under DDP, bytes under FSDP"))
    return tuple(judge.number(value) for value in pair)


EXERCISE = Exercise(
    id="11.sharded_bytes",
    title="What sharding saves",
    level=2,
    minutes=10,
    task="""
Adam trains a model in float32, and `shapes` lists the shapes of its parameters. Write `sharded_bytes(shapes,
ranks)`. It returns a pair of numbers, first for DDP and then for FSDP: the bytes that parameters, gradients
and Adam's two moments take together on rank 0. `fully_shard` cuts each of these tensors along its first
dimension, into pieces of equally many rows. That number of rows is rounded up. So rank 0 gets a full piece,
and the last ranks may get less or nothing. Leave out DDP's buckets and Adam's step counters. Also leave out
what comes and goes, such as the layer that FSDP has gathered.
""",
    hints=(
        "For each parameter, training with Adam keeps more than the parameter itself. How many numbers of 4 "
        "bytes does that make? And does DDP divide any of them between the ranks?",
        "FSDP cuts each tensor by itself along its first dimension, and it never cuts through a row. Rank 0 "
        "has a full piece, so round its rows up, parameter by parameter, before you add anything. Then ask "
        "how many numbers a row has. `math.prod(shape[1:])` tells you, and it's 1 for a bias, which has no "
        "other dimension.",
        "Here four people share some eggs by whole rows. These are the first person's rows, and the eggs "
        "in each row.\n"
        """
```python
import math
trays = [(10, 6, 2), (3,)]  # 10 rows of 6 × 2 eggs, and 3 rows of one egg
rows = [math.ceil(tray[0] / 4) for tray in trays]
print(rows)  # [3, 1]
print([math.prod(tray[1:]) for tray in trays])  # [12, 1]
```""",
    ),
    reference=sharded_bytes,
    check_answer=ComparesToReference(
        sharded_bytes,
        [(shapes, ranks) for shapes in _SHAPES for ranks in (1, 4)],
        known_mistakes_of(sharded_bytes, _MISTAKES),
        read=_validated_result,
        draw=_random_case,
        alike=nearly(1e-9, 0),
        situation=lambda shapes, ranks: _("the shapes {shapes}, ranks={ranks}").format(
            shapes=brief(shapes), ranks=ranks
        ),
        shown=lambda pair: _("DDP {first_pair:,.10g}, FSDP {second_pair:,.10g}").format(
            first_pair=pair[0], second_pair=pair[1]
        ),
    ),
    why="With even shapes, each of n ranks needs an n-th of the memory, and so you can train a model that "
    "fits on none of them. The layer that FSDP has just gathered comes on top, and so do the activations.",
    diagnoses={
        "fewer-numbers": "You count fewer numbers than training needs. There are four of 4 bytes for each "
        "parameter: itself, its gradient, Adam's two moments.",
        "divided": "Your pieces divide rows between ranks. `fully_shard` cuts each parameter by itself, "
        "along its first dimension, and keeps every row whole.",
        "floor": "That rounds down, and some rows belong to no rank.",
        "still-whole": "Some of the four numbers of each parameter are still whole. FSDP divides "
        "parameters, gradients and both moments.",
        "ddp-divided": "Under DDP each rank holds everything: it divides the batch, not the model.",
    },
)
