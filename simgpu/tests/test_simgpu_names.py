"""The simulated device answers for every name that PyTorch's own Python code asks of an accelerator.

The names are read from the sources of the installed PyTorch, so a release that asks for more fails
here with the new name and the file that asks.
"""

import ast
import re
from pathlib import Path

import pytest
import torch

import simgpu

PLACES = [
    "accelerator",
    "amp",
    "autograd/graph.py",
    "distributed",
    "nn/parallel",
    "optim",
    "profiler",
    "random.py",
    "serialization.py",
    "storage.py",
    "utils/backend_registration.py",
    "utils/checkpoint.py",
    "utils/data",
    "utils/_device.py",
    "_tensor.py",
    "_tensor_str.py",
    "_utils.py",
]
"""Where PyTorch asks the accelerator of the day, by file or folder of the package."""

ASKED = {
    "module": re.compile(
        r"_?get_device_module\(\)"
        r"|_?(device|custom|custom_device|backend|acc|torch_device)_?(module|mod|handle|backend)"
    ),
    "stream": re.compile(
        r"(current|default)_stream\(\)|((all_gather|reduce_scatter|all_reduce)_)?stream"
    ),
    "event": re.compile(
        r"record_event\(\)|(all_gather|reduce_scatter|all_reduce|post_reduce)_event"
    ),
    "accelerator": re.compile(r"accelerator"),
}
"""How what is asked is called there: a variable or a call."""

NOT_OURS = {
    ("module", "MemPool"): "symmetric memory, of CUDA alone",
    ("module", "use_mem_pool"): "symmetric memory, of CUDA alone",
    ("module", "_lazy_call"): "asked of modules that have it: hasattr stands before it",
    ("module", "_utils"): "asked of modules that have it: hasattr stands before it",
    ("module", "set_rng_ctx"): "of HPU alone: its name is compared before",
    ("module", "unset_rng_ctx"): "of HPU alone: its name is compared before",
    ("module", "sparse"): "asked of modules that have it: hasattr stands before it",
    ("accelerator", "type"): "of the torch.device that is called so there",
    ("stream", "cuda_stream"): "NCCL's own",
}
"""Names that need no answer, each with the reason."""

FILES = re.compile(
    r"add_value|child_counter|close|close_on_last_child|fileno|flush|get|read\w*|seek\w*|tell|write"
)
"""Of a stream of bytes, not of work."""


def called(node: ast.AST) -> str:
    """Return the last part of a name or of a call."""
    if isinstance(node, ast.Call):
        return called(node.func) + "()"
    return getattr(node, "id", None) or getattr(node, "attr", "")


WORDS = re.compile(
    r"(get_device_module|(current|default)_stream|record_event)\s*\("
    r"|\b(_?(device|custom|custom_device|backend|acc|torch_device)_?(module|mod|handle|backend)"
    r"|((all_gather|reduce_scatter|all_reduce)_)?stream|accelerator"
    r"|(all_gather|reduce_scatter|all_reduce|post_reduce)_event)[\s)]*\."
)
"""What stands somewhere in every text that asks: one without it need not be read as Python."""


def asked(source: str):
    """Return what a text asks of an accelerator, as pairs of kind and name."""
    if not WORDS.search(source):
        return
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute):
            for kind, pattern in ASKED.items():
                if pattern.fullmatch(called(node.value)):
                    yield kind, node.attr


def of_pytorch():
    """Return the names that the installed PyTorch asks for, each with the files that ask."""
    root = Path(torch.__file__).parent
    found = {}
    for place in PLACES:
        path = root / place
        for file in [path] if path.suffix else sorted(path.rglob("*.py")):
            if file.exists():
                for pair in asked(file.read_text(encoding="utf-8")):
                    found.setdefault(pair, set()).add(file.relative_to(root).as_posix())
    return found


def answering():
    simgpu.enable()
    stream = torch.accelerator.current_stream()
    return {
        "module": torch.sim,
        "stream": stream,
        "event": stream.record_event(),
        "accelerator": torch.accelerator,
    }


def test_every_name_has_an_answer():
    found, answers = of_pytorch(), answering()
    missing = [
        f"{kind} .{name}, asked in {', '.join(sorted(files)[:3])}"
        for (kind, name), files in sorted(found.items())
        if not hasattr(answers[kind], name)
        and (kind, name) not in NOT_OURS
        and not (kind == "stream" and FILES.fullmatch(name))
    ]
    assert not missing, "\n".join(missing)
    assert {("stream", "wait_stream"), ("module", "current_device")} <= found.keys()
    assert len(found) > 40


def test_a_name_that_is_missing_is_found():
    source = "s = torch.accelerator.current_stream(); torch.accelerator.current_stream().is_new()\n"
    source += "device_module.other(); self.device_handle.third; torch.get_device_module(d).fourth()"
    modules = {("module", name) for name in ("other", "third", "fourth")}
    assert {("stream", "is_new"), *modules} <= set(asked(source))


NEEDS_AN_ARGUMENT = {"set_device_idx", "set_device_index", "device_index", "set_stream"}


def test_what_torch_accelerator_offers_answers_for_the_device(two_devices):
    """One call may end the process, where PyTorch takes the device's allocator for one of C++."""
    memory = getattr(torch.accelerator, "memory", None)
    offered = {*torch.accelerator.__all__, *getattr(memory, "__all__", ())} - NEEDS_AN_ARGUMENT
    for name in sorted(offered):
        call = getattr(torch.accelerator, name, None) or getattr(memory, name)
        if name == "Graph":  # of CUDA and XPU alone
            with pytest.raises(RuntimeError, match="not supported on device type"):
                call()
        else:
            call()
    assert torch.accelerator.current_accelerator().type == "sim"
    assert torch.float16 in torch.accelerator.get_device_capability("sim:1")["supported_dtypes"]


def test_sums_of_memory_begin_again(two_devices):
    held = torch.ones(1000, device="sim")
    torch.ones(5000, device="sim")
    torch.accelerator.reset_accumulated_memory_stats()
    stats = torch.sim.memory_stats()
    assert stats["allocation.all.freed"] == stats["allocated_bytes.all.freed"] == 0
    assert stats["allocated_bytes.all.current"] >= held.nbytes
    del held
    assert torch.sim.memory_stats()["allocation.all.freed"] == 1
