"""Predict the ledger."""

from __future__ import annotations

from itertools import product
from typing import Any

from course_language import say, spoken
from course_utils.exercises import Exercise, Judge


def one_step_bytes():
    parameters = 784 * 100 + 100 + 100 * 10 + 10
    images = 64 * 784
    labels = 64 * 8
    to_device = 4 * parameters + images + labels
    return to_device, 4


_PARAMETERS = 4 * 79_510
_TRAVELLERS = {
    spoken("the model"): {
        "": _PARAMETERS,
        "no-model": 0,
        "no-biases": 4 * (784 * 100 + 100 * 10),
        "doubled": 2 * _PARAMETERS,
        "numbers": 79_510,
        "one-layer": 4 * (784 * 100 + 100),
        "one-layer-more": 4 * (100 * 10 + 10),
    },
    spoken("the images"): {
        "": 64 * 784,
        "floats": 4 * 64 * 784,
        "noise": 5 * 64 * 784,
        "eight-bytes": 8 * 64 * 784,
        "no-images": 0,
        "one-image": 784,
    },
    spoken("the labels"): {
        "": 64 * 8,
        "short-labels": 64 * 4,
        "byte-labels": 64,
        "no-labels": 0,
        "one-label": 8,
    },
}
"""What travels to the device: its bytes, and those of a learner who takes it for something else."""

_SAME = {"one-layer-more": "one-layer", "one-label": "one-image"}
_BACK = {
    "gradients-back": (_PARAMETERS, _PARAMETERS + 4),
    "nothing-back": (0,),
}


def _check_one_step_bytes(answer: Any, judge: Judge) -> None:
    answer = judge.listed(answer, "a pair: bytes to the device, bytes to the host")
    if len(answer) != 2:
        judge.no(seen=answer, expected="two numbers")
    there, back = (judge.number(n.item() if hasattr(n, "item") else n) for n in answer)
    right, _ = one_step_bytes()
    ways = list(product(*(sizes.items() for sizes in _TRAVELLERS.values())))
    sums = {sum(size for _, size in way) for way in ways}
    if there < back and back in sums and any(there in sizes for sizes in ((4,), *_BACK.values())):
        judge.no(seen=f"{there:,.0f} bytes to the device")
    if there == right + 4:
        judge.no(seen=f"{there:,.0f} bytes to the device", expected="one way only")
    if there in (right / 1000, right / 1024):
        judge.no(seen=f"{there:,.3f} to the device", expected="bytes")
    for way in sorted(ways, key=lambda way: sum(bool(fault) for fault, _ in way)):
        if sum(size for _, size in way) == there:
            faults = [fault for fault, _ in way]
            break
    else:
        judge.no(seen=f"{there:,.0f} bytes to the device")
    if any(faults):
        right_too = ("", "noise")  # who counts the noise has the images' bytes as well
        whole = [say(n) for n, fault in zip(_TRAVELLERS, faults, strict=True) if fault in right_too]
        fault = next(filter(None, faults))
        judge.no(
            _SAME.get(fault, fault),
            seen=f"{there:,.0f} bytes to the device"
            + (f"; right in it: {', '.join(whole)}" if whole else ""),
        )
    if back != 4:
        told = (name for name, sizes in _BACK.items() if back in sizes)
        judge.no(next(told, "wrong-value"), seen=f"{back:,.0f} bytes to the host")


EXERCISE = Exercise(
    id="02.one_step_bytes",
    title="Predict the ledger",
    task="What will cross the bus in `one_step(device)`, just above? Answer with a pair: the bytes from the host "
    "to the device, and the bytes from the device to the host. Work it out on paper.",
    level=2,
    minutes=8,
    hints=(
        "Go through the function line by line and ask of each: does something leave one memory for the other? "
        "What is computed on the device stays there.",
        "Three things travel to the device: the model's parameters, the images, the labels. A byte, a float and "
        "a class label have 1, 4 and 8 bytes.",
        "A linear layer from a to b has a·b weights and b biases. And `loss.item()` reads one float.",
    ),
    reference=one_step_bytes,
    check_answer=_check_one_step_bytes,
    why="318,040 of the 368,728 bytes are the model, which a real loop moves once. Then each step sends 50,688: "
    "images as bytes, labels as int64.",
    diagnoses={
        "floats": "You counted the images as floats. Does `.float()` stand before the move?",
        "short-labels": "`torch.randint` gives `int64`: how many bytes has one label?",
        "no-model": "`.to(device)` on a model moves its parameters, and they cross the same bus.",
        "gradients-back": "The gradients are computed on the device, from tensors on the device. They need no "
        "journey, and `backward()` makes none.",
        "nothing-back": "The way to the device is right. But something comes back: which line needs a value in Python?",
    },
)
