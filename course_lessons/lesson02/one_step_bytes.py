"""Predict the ledger."""

from itertools import product

from course_language import N_, _
from course_utils.exercises import Exercise


def one_step_bytes():
    parameters = 784 * 100 + 100 + 100 * 10 + 10
    images = 64 * 784
    labels = 64 * 8
    to_device = 4 * parameters + images + labels
    return to_device, 4


_PARAMETERS, _IMAGES, _LABELS = 4 * 79_510, 64 * 784, 64 * 8
_TRAVELLERS = {
    N_("the model"): {"": _PARAMETERS, "no-model": 0},
    N_("the images"): {"": _IMAGES, "floats": 4 * _IMAGES},
    N_("the labels"): {"": _LABELS, "short-labels": _LABELS // 2},
}
"""What travels to the device: its bytes, and those of a learner who takes it for something else."""

_BACK = {0: "nothing-back", _PARAMETERS: "gradients-back", _PARAMETERS + 4: "gradients-back"}


def _check_answer(answer, judge):
    """Check the two numbers; a sum that fits known wrong sizes gets their diagnosis."""
    answer = judge.listed(answer, _("a pair: bytes to the device, bytes to the host"))
    if len(answer) != 2:
        judge.no(seen=answer, expected=_("two numbers"))
    sent, returned = map(judge.number, answer)
    for sizes in product(*(sizes.items() for sizes in _TRAVELLERS.values())):
        faults = [fault for fault, _ in sizes if fault]
        if faults and sum(size for _, size in sizes) == sent:
            known = zip(_TRAVELLERS, sizes, strict=True)
            whole = ", ".join(_(name) for name, (fault, __) in known if not fault)
            judge.no(
                faults[0],
                seen=_("{sent:,.0f} bytes to the device").format(sent=sent)
                + (_("; right in it: {whole}").format(whole=whole) if whole else ""),
            )
    if sent != one_step_bytes()[0]:
        judge.no(seen=_("{sent:,.0f} bytes to the device").format(sent=sent))
    if returned != 4:
        judge.no(
            _BACK.get(returned, "wrong-value"),
            seen=_("{returned:,.0f} bytes to the host").format(returned=returned),
        )


EXERCISE = Exercise(
    id="02.one_step_bytes",
    title="Predict the ledger",
    task="What will cross the bus in `one_step(device)`, just above? Answer with a pair: the bytes from the "
    "host to the device, and the bytes from the device to the host. Work it out on paper.",
    level=2,
    minutes=8,
    hints=(
        "Go through `one_step` line by line, and ask the same question each time. Does anything leave "
        "one memory for the other here? Whatever is computed on the device stays there.",
        "Three things travel to the device, the parameters of the model, the images and the labels. "
        "Look at the dtype of each at the moment when it moves. `nn.Linear(a, b)` has a·b weights and "
        "b biases, and they're float32. For the way back, find the line that needs a value in Python.",
        "PyTorch counts bytes for you, so here you can check a smaller case.\n\n"
        """```python
layer = torch.nn.Linear(3, 2)
print(sum(p.nbytes for p in layer.parameters()))  # 32, for 6 weights and 2 biases
pixels = torch.zeros(5, 3, dtype=torch.uint8)
print(pixels.nbytes, pixels.float().nbytes)  # 15 as bytes, 60 as floats
print(torch.arange(5).nbytes)  # 40, because each integer is an int64
```""",
    ),
    reference=one_step_bytes,
    check_answer=_check_answer,
    why="The model makes up 318,040 of the 368,728 bytes, and a real loop moves it only once. After "
    "that, each step sends 50,688 bytes, the images as uint8 and the labels as int64.",
    diagnoses={
        "floats": "You counted the images as floats. Does `.float()` stand before the move?",
        "short-labels": "`torch.randint` gives `int64`: how many bytes has one label?",
        "no-model": "`.to(device)` on a model moves its parameters, and they cross the same bus.",
        "gradients-back": "The gradients are computed on the device, from tensors on the device. They need "
        "no journey, and `backward()` makes none.",
        "nothing-back": "The way to the device is right. But something comes back: which line needs a value "
        "in Python?",
    },
)
