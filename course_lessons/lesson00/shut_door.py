"""Which door is shut?"""

from __future__ import annotations

from typing import Any

from course_utils.exercises import Exercise, Judge


def shut_door():
    return {"A": 1, "B": 3, "C": 2, "D": 5}


def _check_shut_door(answer: Any, judge: Judge) -> None:
    judge.is_a(answer, dict, "a dictionary such as {'A': 1, 'B': 1, 'C': 1, 'D': 1}")
    if set(answer) != {"A", "B", "C", "D"}:
        judge.no("four-keys", seen=sorted(map(str, answer)), expected="the keys A, B, C and D")
    if not all(door in (1, 2, 3, 4, 5) for door in answer.values()):
        judge.no("door-numbers", seen=answer, expected="door numbers from 1 to 5")
    reasons = {"A": "driver-is-there", "B": "first-shut-door", "C": "no-card", "D": "emulated"}
    for letter, reason in reasons.items():
        if answer[letter] != shut_door()[letter]:
            judge.no(reason, seen=f"{letter}: door {answer[letter]}", expected="another door")


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
        "The part after the plus sign in a version, `+cpu` or `+cu128`, names the wheel.",
        "One of the four has a wheel for GPUs and no GPU. Another has a GPU for which the wheel "
        "holds no code.",
        "The T4 computes right results at door 4. So what is left?",
    ),
    reference=shut_door,
    check_answer=_check_shut_door,
    why="Each door has its own remedy: another wheel, another runtime, another card, another "
    "number format. Find the door first, then change one thing.",
    diagnoses={
        "four-keys": "Give one door for each of the four people.",
        "door-numbers": "A door is a whole number from 1 to 5.",
        "driver-is-there": "`nvidia-smi` talks to the driver, so that door is open for A. Look at "
        "what the version says after the plus sign.",
        "first-shut-door": "The product fails at door 4, but it fails because of an earlier one: "
        "read which thing the message says is missing.",
        "no-card": "The wheel `+cu128` can drive a GPU. What does the message say it did not find?",
        "emulated": "Right results, slowly: the work is done, but not by units made for it.",
    },
)
