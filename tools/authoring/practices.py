"""The table of handbook/practices.md: what each habit brought, by the records, or in words where there is no number."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from course_lessons.shared.claims import Found, Ratio, Value
from course_utils.course import Course
from tools.authoring.cells import row

NOTHING = 0.03
"""A time that changes by less than this share, or whose quartiles enclose no change, is called none: loops that take turns on a quiet machine differ by so much."""


NO_GPU = "No real GPU has been recorded here yet: a GPU's numbers below are published or modelled."


@dataclass(frozen=True)
class Practice:
    """One habit.

    Attributes
    ----------
    name, when
        What to do, and where it helps or what it costs.
    lesson
        The lesson that builds it.
    numbers
        What speaks to it: times as fast, or times less memory.
    said
        What is known beside the numbers, with its source.
    modelled
        Whether modelled numbers of a T4 are shown, for want of others.
    """

    name: str
    when: str
    lesson: str
    numbers: Sequence[Ratio | Value] = ()
    said: str = ""
    modelled: bool = False

    @property
    def found(self) -> list[Found]:
        """Its numbers: recorded, published and, where they are asked for and a GPU has no other, modelled."""
        every = [found for number in self.numbers for found in number.found()]
        real = [f for f in every if f.kind != "modelled"]
        if self.modelled and not any(f.accelerator for f in real):
            real += [f for f in every if f.kind == "modelled" and "T4" in f.where]
        return real


def _used(experiment: str, quantity: str = "time", **where: Any) -> Ratio:
    """Return what others published of one thing, without it and with it."""
    return Ratio(experiment, {"used": False}, {"used": True}, quantity, where=where)


def _rung(before: str, after: str) -> Ratio:
    """Return what one rung of the ladder brought, both measured against the same first loop."""
    return Ratio("ladder", {"rung": before}, {"rung": after}, "speed-up")


def _loop(change: str, *loops: str) -> Ratio:
    return Ratio("loop_step", {"change": "none"}, {"change": change}, where={"loop": loops})


FP32, TF32 = {"precision": "fp32"}, {"precision": "tf32"}
HALF = {"precision": ("fp16", "bf16")}
BF16 = {"precision": "bf16"}
COPIES = "loop_with_copies"

GROUPS: Mapping[str, Sequence[Practice]] = {
    "Loading and copying": (
        Practice(
            "data that fit lie on the device, and batches are cut there",
            "small data; memory of the device is what it costs",
            "03",
            [_rung("none", "data on the device")],
        ),
        Practice(
            "`DataLoader(num_workers=…)`",
            "decoding is slow and cores are free; light work loses, and each worker costs host memory and a start",
            "03",
            [
                Ratio("loader_epoch", {"workers": 0}, {"workers": 2}),
                Ratio("loading", {"workers": (0, "as given")}, {"workers": (3, 4, 16)}),
            ],
        ),
        Practice(
            "`pin_memory=True`",
            "CUDA, ROCm, XPU; not MPS. It takes host memory that cannot be swapped out",
            "02",
            [Ratio(COPIES, {"pinned": False}, {"pinned": True})],
        ),
        Practice(
            "`.pin_memory()` on a batch, then copy",
            "it depends on the host: fresh pinned memory is dear to get, and a pinned block that is used again is a quick copy. `pin_memory=True` does both beside the loop",
            "02",
            [
                Ratio(
                    "host_to_device",
                    {"source": "pageable"},
                    {"source": "pinned on the spot"},
                    where={"non_blocking": False},
                )
            ],
            modelled=True,
        ),
        Practice(
            "`.to(device, non_blocking=True)`",
            "from pinned memory, towards the device. One large copy from pageable memory gains nothing by it; small ones may gain a little. On MPS leave it out",
            "02",
            [Ratio(COPIES, {"non_blocking": False}, {"non_blocking": True})],
        ),
    ),
    "The loop": (
        Practice(
            "a larger batch",
            "the device idles between small kernels; it costs memory, and the learning rate must follow",
            "07",
            [_used("batch_size")],
            "Time is half of it: [lesson 09](../notebooks/09_capstone.ipynb) makes the batch larger, and turns it down where one epoch teaches less.",
        ),
        Practice(
            "no `.item()`, `print(loss)` or `.cpu()` in a step",
            "a GPU that must not wait for Python; on a CPU there is no wait to save",
            "03",
            [_rung("data on the device", "no .item()"), _loop("no questions", "synchronisation")],
            modelled=True,
        ),
        Practice(
            "`zero_grad(set_to_none=True)`",
            "nowhere any more",
            "06",
            said="**Nothing**: it is the default since PyTorch 2.0 ([documentation]"
            "(https://docs.pytorch.org/docs/stable/generated/torch.optim.Optimizer.zero_grad.html), read 2026-11-23). "
            "`set_to_none=False` costs the gradients' bytes.",
        ),
        Practice(
            "`loss_fn.to(device)`",
            "a loss with weights of its own",
            "02",
            said="**Nothing** for a loss without tensors: there is nothing to move.",
        ),
        Practice(
            "`torch.inference_mode()` for evaluation, with `model.eval()`",
            "everywhere but with FSDP2, where an evaluation before the first step makes training fail: take `torch.no_grad()` there. Its results cannot be trained on later",
            "03",
            said="Memory: no activation is kept. Of the time no figure is recorded here.",
        ),
        Practice(
            "`torch.set_num_threads(…)`",
            "a CPU: several processes that share it, or operations so small that threads cost more than they bring",
            "09",
            said="No figure is recorded here: measure it. On a GPU, nothing.",
        ),
    ),
    "Precision": (
        Practice(
            "mixed precision (AMP)",
            "products and convolutions that keep the device busy, on units for 16 bits. Where a GPU waits for Python there is little to gain, and each cast is one more launch",
            "04",
            [
                Ratio("mlp_step", FP32, HALF),
                Ratio("cnn_step", FP32, HALF, where={"channels_last": False}),
                Ratio("resnet50_step", FP32, HALF, where={"batch": 4}),
                Ratio("amp_training", {"precision": ("fp32", "tf32")}, BF16),
            ],
            "Of ResNet-50 and BERT: [claims](claims_numbers.md#claim-amp-speed).",
        ),
        Practice(
            "the same, for memory",
            "activations outweigh weights, gradients and optimiser, which stay in float32. BERT-large with one sequence a step saves nothing",
            "04",
            [
                *(
                    Ratio(name, FP32, HALF, "peak memory")
                    for name in ("mlp_step", "resnet50_step", "bert_large_step", "amp_training")
                ),
                Ratio("cnn_step", FP32, HALF, "peak memory", where={"channels_last": False}),
            ],
        ),
        Practice(
            '`torch.set_float32_matmul_precision("high")` (TF32)',
            "NVIDIA from A100 and RTX 30 on, for what is in float32, where products keep the card busy. Three decimal digits of a factor remain",
            "04",
            [
                Ratio("mlp_step", FP32, TF32),
                Ratio("cnn_step", FP32, TF32, where={"channels_last": False}),
                Ratio("resnet50_step", FP32, TF32),
                Ratio("bert_large_step", FP32, TF32),
                Ratio("amp_training", FP32, TF32),
                _used("tf32"),
            ],
            "Memory: tensors keep their 4 bytes. The peak fell only where strict float32 had taken more working memory: [lesson 04](../notebooks/04_mixed_precision.ipynb) has the figures.",
        ),
    ),
    "Kernels": (
        Practice(
            "`channels_last`",
            "convolutions that keep the device busy, most in 16 bits. On an H200 short steps and few channels gained nothing, or lost",
            "07",
            [
                Ratio("cnn_step", {"channels_last": False}, {"channels_last": True}),
                _rung("large batch", "channels_last"),
                _used("channels_last"),
            ],
        ),
        Practice(
            "`torch.backends.cudnn.benchmark = True`",
            "convolutions of the same shape again and again; each new shape costs a search",
            "07",
            [
                Ratio("cudnn_benchmark", {"benchmark": False}, {"benchmark": True}),
                _used("cudnn_search"),
            ],
        ),
        Practice(
            "`fused=True` for the optimiser",
            "a step that waits for the launches of many small updates",
            "07",
            [
                _rung("no .item()", "fused optimiser"),
                Ratio("means_step", {"means": "as it is"}, {"means": "fused"}),
                _used("fused_optimizer"),
            ],
        ),
        Practice(
            "`torch.compile`",
            "many small operations; the next row is its price",
            "07",
            [Ratio("gelu", {"how": "by hand"}, {"how": "compiled"}), _used("compile")],
        ),
        Practice(
            "its first call, and that with each new shape",
            "a short run never earns it back",
            "07",
            [Ratio("gelu", {"how": "by hand"}, {"how": "compiled"}, "first call")],
        ),
        Practice(
            "PyTorch's own operation in place of several (`F.gelu`, `F.scaled_dot_product_attention`)",
            "wherever there is one",
            "07",
            [Ratio("gelu", {"how": "by hand"}, {"how": "built in"}), _used("attention")],
        ),
        Practice(
            "CUDA graphs",
            "small kernels, fixed shapes and addresses, no question to the device inside",
            "07",
            [_used("cuda_graph")],
        ),
    ),
    "Memory": (
        Practice(
            "gradient checkpointing",
            "activations fill the card; it costs a second forward pass",
            "06",
            [
                Ratio(
                    "means_step",
                    {"means": "as it is"},
                    {"means": "checkpointing"},
                    where={"device": "cpu"},
                )
            ],
            "A card that is busy pays a third more for a whole second forward pass, by its FLOPs. A card that waits for Python pays for the launches: [lesson 06](../notebooks/06_memory.ipynb) has an H200's figures. About 20 % slower with transformers (published: [Transformers, gradient checkpointing]"
            "(https://huggingface.co/docs/transformers/en/grad_checkpointing), read 2026-11-23).",
        ),
        Practice(
            "accumulation over 4 parts",
            "a larger batch than fits. It saves memory and may cost time; that it *speeds up convergence* is not so",
            "03",
            said="A card that one part fills loses next to nothing; a card that waits for small kernels waits for four times as many of them. No figure of a full card is recorded here. "
            "The gradient is that of the whole batch only with equal parts and without BatchNorm: "
            "[claims](claims_numbers.md#claim-accumulation).",
        ),
        Practice(
            "`torch.cuda.empty_cache()`",
            "another program on the same card wants the memory",
            "06",
            said="**Nothing** for your own program: it frees no tensor and gives PyTorch no more memory; it may help where "
            "memory is fragmented ([documentation](https://docs.pytorch.org/docs/stable/generated/torch.cuda.memory.empty_cache.html), "
            "read 2026-11-23). In a loop it costs: the memory must be asked for again.",
        ),
        Practice(
            "`del` of what is no longer needed",
            "a large tensor that outlives its use",
            "06",
            said="Its bytes, once the last reference is gone; nothing while a list, a view or a graph still holds it.",
        ),
    ),
    "Several GPUs": (
        Practice(
            "DDP in place of `DataParallel`",
            "always; without a quick link between the cards even DDP can lose",
            "05",
            [
                Ratio("data_parallel", {"how": "DataParallel"}, {"how": "DDP over NVLink"}),
                Ratio("data_parallel", {"how": "DataParallel"}, {"how": "DDP without NVLink"}),
            ],
        ),
        Practice(
            "DDP on 4 GPUs in place of one",
            "a step that computes more than it sends",
            "05",
            [_used("ddp")],
        ),
        Practice(
            "`no_sync()` while accumulating",
            "all parts but the last, forward included",
            "05",
            [_used("no_sync")],
        ),
        Practice(
            "`gradient_as_bucket_view=True`",
            "DDP: saves a copy of the gradients; `.grad` may not be detached in place",
            "05",
            [_used("bucket_view", "peak memory"), _used("bucket_view")],
        ),
    ),
}

SAID = {
    "ladder, tutorial, ": "network of PyTorch's CIFAR-10 tutorial, ",
    "ladder, airbench, ": "network of airbench, ",
    "loader epoch, light": "light transform",
    "loader epoch, heavy": "heavy transform",
    "host to device, megabytes 1, not non blocking": "1 MB copied",
    "host to device, megabytes 64, not non blocking": "64 MB copied",
    "mlp step": "small MLP",
    "cnn step": "CNN",
    "resnet50 step": "ResNet-50",
    "bert large step": "BERT-large",
    "gelu": "GELU of 4 million numbers",
    "loop step, ": "a loop that on a T4 is held up by: ",
    "means step, as it is → checkpointing": "four wide blocks",
    "means step, as it is → fused": "four wide blocks",
    "not non blocking → non blocking": "blocking → non-blocking",
    "not non blocking": "blocking",
    "non blocking": "non-blocking",
    ", not used → used": "",
    "cudnn benchmark, ": "eight convolutions, ",
    ", not benchmark → benchmark": "",
    ", not channels last → channels last": "",
    ", large batch → channels_last": ", large batch",
    ", not channels last": "",
    ", none → no questions": "",
    ", none → 4 pieces": "",
}
"""What a record calls itself, and what a reader calls it."""


def practices(course: Course) -> str:
    """Return a table for each group, as Markdown."""
    every = [f for group in GROUPS.values() for p in group for f in p.found]
    parts = []
    if not any(f.accelerator and f.kind == "recorded" for f in every):
        parts.append(NO_GPU)
    for title, group in GROUPS.items():
        head = row("Practice", "Where it helps, what it costs", "What it brought", "Lesson")
        rows = [row(p.name, p.when, told(p), _lesson(course, p.lesson)) for p in group]
        parts.append("\n".join([f"## {title}\n", head, "|---|---|---|---|", *rows]))
    return "\n\n".join(parts)


def _lesson(course: Course, number: str) -> str:
    return f"[{number}](../notebooks/{course.lesson(number).file})"


def told(practice: Practice) -> str:
    """Say what one practice brought: in a word for CPU and GPU, then each number with its kind and source."""
    places = {"CPU": [], "GPU": []}
    for f in practice.found:
        places["GPU" if f.accelerator else "CPU"].append(f)
    lines = [f"**{place}: {verdict(found)}**" for place, found in places.items() if found]
    lines += [practice.said] if practice.said else []
    if n := len(practice.found):
        summary = "1 number" if n == 1 else f"{n} numbers"
        numbers = "<br>".join(map(_number, practice.found))
        lines.append(f"<details><summary>{summary}</summary>{numbers}</details>")
    return "<br>".join(lines).replace("<br><details>", "<details>")


def verdict(found: Sequence[Found]) -> str:
    """Weigh the numbers in a word, and give their range and their kinds."""
    low, high = (end(f.value for f in found) for end in (min, max))
    if all(abs(f.value - 1) < NOTHING or f.low <= 1 <= f.high for f in found):
        word = "nothing"
    elif low >= 1 + NOTHING:
        word = "gains"
    elif high <= 1 - NOTHING:
        word = "costs"
    else:
        word = "depends"
    kinds = ", ".join(dict.fromkeys(f.kind for f in found))
    ends = _times(low) + f" to {_times(high)}" * (_times(low) != _times(high))
    return f"{word}, {ends} ({kinds})"


def _times(value: float) -> str:
    if value < 0.1:
        return f"1/{1 / value:.0f}×"
    return f"{value:.2f}×" if value < 9.95 else f"{value:.0f}×"


def _number(f: Found) -> str:
    what = f.what
    for record, reader in SAID.items():
        what = what.replace(record, reader)
    ends = f" ({_times(f.low)[:-1]} to {_times(f.high)})" if f.low != f.high else ""
    where = f"{what}; {f.where}"
    return f"{_times(f.value)}{ends} *{f.kind}*: {where}; {_source(f) if f.source else f.date}"


def _source(f: Found) -> str:
    """Link the source, with its date or, where it has none, with the day on which it was read."""
    title, _, address = f.source.rpartition(", ")
    dated = re.search(r", \d{4}(-\d\d)*$", title)
    return f"[{title}]({address})" + ("" if dated else f", read {f.date}")
