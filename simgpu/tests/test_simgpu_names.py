"""The simulated device answers for every name that PyTorch's own Python code asks of an accelerator.

The names are read from the sources of the installed PyTorch, so a release that asks for more fails
here with the new name and the file that asks.
"""

import re
from pathlib import Path

import pytest
import torch

import simgpu

PLACES = (
    "accelerator amp autograd/graph.py distributed nn/parallel optim profiler random.py serialization.py "
    "storage.py utils/backend_registration.py utils/checkpoint.py utils/data utils/_device.py _tensor.py "
    "_tensor_str.py _utils.py"
)
"""Where PyTorch asks the accelerator of the day, by file or folder of the package."""
REDUCED = "all_gather|reduce_scatter|all_reduce|post_reduce"
ASKED = {
    kind: re.compile(rf"(?<![\w.])(?:self\.|torch\.)*(?:{names})\.(\w+)")
    for kind, names in {
        "module": r"_?get_device_module\([^()]*\)"
        r"|_?(?:device|custom|custom_device|backend|acc|torch_device)_?(?:module|mod|handle|backend)",
        "stream": rf"(?:accelerator\.)?(?:current|default)_stream\(\)|(?:(?:{REDUCED})_)?stream",
        "event": rf"(?:{REDUCED})_event",
        "accelerator": "accelerator",
    }.items()
}
"""How what is asked is called there: a variable or a call."""
NOT_OURS = {
    "module": {
        *("MemPool", "use_mem_pool"),  # symmetric memory, of CUDA alone
        *("_lazy_call", "_utils", "sparse"),  # hasattr stands before it
        *("set_rng_ctx", "unset_rng_ctx"),  # of HPU alone: its name is compared before
    },
    "accelerator": {"type"},  # of the torch.device that is called so there
    "stream": {"cuda_stream"},  # NCCL's own
}
FILES = re.compile(
    r"add_value|child_counter|close|close_on_last_child|fileno|flush|get|read\w*|seek\w*|tell|write|zstd"
)
"""Of a stream of bytes, not of work."""


def test_every_name_has_an_answer():
    simgpu.enable()
    stream = torch.accelerator.current_stream()
    answers = {"module": torch.sim, "stream": stream, "event": stream.record_event()}
    answers["accelerator"] = torch.accelerator
    root, asked_by = Path(torch.__file__).parent, {}
    for path in map(root.joinpath, PLACES.split()):
        for file in [path] if path.suffix else sorted(path.rglob("*.py")):
            text = file.read_text(encoding="utf-8") if file.exists() else ""
            for kind, pattern in ASKED.items():
                for name in pattern.findall(text):
                    asked_by.setdefault((kind, name), file.relative_to(root).as_posix())
    missing = {
        (kind, name): file
        for (kind, name), file in asked_by.items()
        if not hasattr(answers[kind], name) and name not in NOT_OURS.get(kind, ())
        if not (kind == "stream" and FILES.fullmatch(name))
    }
    assert not missing
    assert {("stream", "wait_stream"), ("module", "current_device")} <= asked_by.keys()
    assert len(asked_by) > 40


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
