"""Which door is shut?"""

from course_language import _
from course_utils.exercises import Exercise


def shut_door():
    return {"A": 1, "B": 3, "C": 2, "D": 5}


_DIAGNOSES = {
    ("A", 2): "driver-is-there",
    ("B", 1): "open-for-b",
    ("B", 2): "open-for-b",
    ("B", 4): "first-shut-door",
    ("B", 5): "first-shut-door",
    ("C", 1): "no-card",
    **{("D", door): "emulated" for door in (1, 2, 3, 4)},
}


def _check_answer(answer, judge):
    """Check the dictionary's keys, then each person's door; ``_DIAGNOSES`` explains known wrong doors."""
    judge.is_a(answer, dict, _("a dictionary such as {'A': 1, 'B': 1, 'C': 1, 'D': 1}"))
    if set(answer) != set(shut_door()):
        judge.no(
            seen=_("the keys {answer}").format(answer=list(answer)),
            expected=_("the keys A, B, C and D"),
        )
    for person, right in shut_door().items():
        door = answer[person]
        if door not in range(1, 6):
            judge.no(seen=f"{person}: {door!r}", expected=_("a whole number from 1 to 5"))
        if door != right:
            diagnosis = _DIAGNOSES.get((person, door), "wrong-value")
            judge.no(
                diagnosis,
                seen=_("{person}: door {door}").format(person=person, door=door),
                expected=_("another door"),
            )


EXERCISE = Exercise(
    id="00.shut_door",
    title="Which door is shut?",
    task="Four people ask for help. Name the **first** shut door for each, from 1 to 5.\n\n"
    '- **A** *"My laptop has an RTX 4060, and `nvidia-smi` shows it. `torch.__version__` says '
    '`2.13.0+cpu`."*\n'
    '- **B** *"In July 2026 Kaggle gave me a P100. `torch.cuda.is_available()` is True, but my first product '
    'ends in `no kernel image is available for execution on the device`."*\n'
    '- **C** *"In Colab I have `2.11.0+cu128`. It says `Found no NVIDIA driver on your '
    'system`."*\n'
    '- **D** *"On a T4 everything runs, but bfloat16 is slower than float32."*\n\n'
    'Replace `todo()` with a dictionary, such as `{"A": 4, "B": 4, "C": 4, "D": 4}`.',
    level=2,
    minutes=4,
    hints=(
        "Take one person at a time, and try the doors in order, from number 1. What does the message "
        "tell you? And what must have worked already, so that this message could come at all?",
        "The part after the plus sign in a version names the wheel. `nvidia-smi` talks to the driver, "
        "so it tells you nothing about the wheel. An error names what's missing, so ask which door "
        "stands for that thing. And whoever gets right results has passed the first four doors.",
        "Here is a fifth person. Her wheel, her driver and the wheel's list are fine, but her product "
        "ends in an error from the GPU. The code finds the first door that isn't open.\n\n"
        """```python
doors = ["wheel", "driver", "architecture list", "real kernel", "native bfloat16"]
passed = {"wheel", "driver", "architecture list"}
shut = [number for number, door in enumerate(doors, start=1) if door not in passed]
print(shut, {"E": shut[0]})  # [4, 5] {'E': 4}
```""",
    ),
    reference=shut_door,
    check_answer=_check_answer,
    why="Each door has its own fix: another wheel, another runtime, another card, another "
    "number format. Find the door first, then change one thing.",
    diagnoses={
        "driver-is-there": "`nvidia-smi` talks to the driver, so that door is open for A. Look at "
        "what the version says after the plus sign.",
        "open-for-b": "For B `is_available()` says True, and it tests doors 1 and 2: both are open. Read "
        "which thing the message says is missing.",
        "first-shut-door": "The product of B comes to door 4 and fails there, but because of an earlier one: "
        "read which thing the message says is missing.",
        "no-card": "The wheel `+cu128` can drive a GPU, so door 1 is open for C. What does the message say "
        "it did not find?",
        "emulated": "Right results, slowly, so doors 1 to 4 are open for D: the work is done, but not by "
        "units made for it.",
    },
)
