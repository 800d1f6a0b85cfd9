"""Exercises of lesson 00: start here."""

from __future__ import annotations

from typing import Any

from .core import Exercise, Judge


def weight_bytes(parameters, bits):
    return parameters * bits / 8


def _check_weight_bytes(answer: Any, judge: Judge) -> None:
    for parameters, bits in ((1000, 32), (1_000_000, 16), (6, 4), (7_000_000_000, 16)):
        got = judge.number(answer(parameters, bits))
        right = parameters * bits / 8
        if got == right:
            continue
        seen = f"{got:,g}, for {parameters:,} parameters of {bits} bits"
        for diagnosis, other in (
            ("whole-bytes", parameters * (bits // 8)),
            ("whole-bytes", parameters * -(-bits // 8)),
            ("bits", parameters * bits),
            ("always-32", parameters * 4),
            ("inverse", parameters * 32 / bits / 8),
            ("eight", parameters * 8),
            ("larger-unit", right / 1e9),
            ("larger-unit", right / 1024),
        ):
            if got == other:
                judge.no(diagnosis, seen=seen, expected=f"{right:,g} bytes")
        judge.no("other", seen=seen, expected=f"{right:,g} bytes")


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


EXERCISES = (
    Exercise(
        id="00.weight_bytes",
        title="Bytes for the weights",
        task="A network has `parameters` numbers, and each is stored in `bits` bits. Return how many "
        "**bytes** its weights take. The cell calls `check` on your function: run it once as it is, "
        "then with a wrong answer, then with a right one, and read what comes back.",
        level=1,
        minutes=3,
        hints=(
            "How many bits make one byte?",
            "A million parameters of 32 bits take four million bytes. Which two numbers, multiplied "
            "and then divided by what, give that?",
        ),
        reference=weight_bytes,
        check_answer=_check_weight_bytes,
        # 14 GB: arithmetic 7e9 * 16 / 8 / 1e9
        why="You will do this sum often: a 7-billion-parameter network in 16 bits takes 14 GB before "
        "it has computed anything, and a free T4 has 16.",
        diagnoses={
            "bits": "That is the number of bits. Memory is counted in bytes.",
            "always-32": "The number of bits plays no part in your answer. Half the bits should take "
            "half the memory.",
            "inverse": "Your answer grows when the numbers get smaller.",
            "eight": "Your answer does not use the number of bits: 8 is how many bits make a byte.",
            "larger-unit": "The task asks for bytes, not for kilobytes or gigabytes.",
            "whole-bytes": "You round each number to whole bytes. Two numbers of 4 bits share one byte.",
            "other": "Not this number. Work the case below out on paper: how many bits are there in all?",
        },
        wrong={
            "bits": lambda parameters, bits: parameters * bits,
            "always-32": lambda parameters, bits: parameters * 4,
            "eight": lambda parameters, bits: parameters * 8,
            "larger-unit": lambda parameters, bits: parameters * bits / 8 / 1024,
            "whole-bytes": lambda parameters, bits: parameters * (bits // 8),
            "other": lambda parameters, bits: parameters + bits,
            "inverse": lambda parameters, bits: parameters * 32 / bits / 8,
        },
    ),
    Exercise(
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
        wrong={
            "driver-is-there": {"A": 2, "B": 3, "C": 2, "D": 5},
            "first-shut-door": {"A": 1, "B": 4, "C": 2, "D": 5},
            "no-card": {"A": 1, "B": 3, "C": 1, "D": 5},
            "emulated": {"A": 1, "B": 3, "C": 2, "D": 4},
            "four-keys": {"A": 1},
            "door-numbers": {"A": 1, "B": 3, "C": 2, "D": 6},
        },
    ),
)
