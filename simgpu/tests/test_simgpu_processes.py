"""What the simulated device does to other processes, and to a process that never asks for it."""

import multiprocessing
import os
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from jupyter_client.manager import start_new_kernel
from support import HOME, python, skip

import simgpu

pytestmark = [
    pytest.mark.usefixtures("two_devices"),
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning"),
]

SIM = "sim"


def test_an_import_leaves_pytorch_untouched():
    out = python(
        """
        import torch
        from torch.optim.optimizer import _foreach_supported_types
        names = "empty zeros ones tensor _has_compatible_shallow_copy_type clear_autocast_cache".split()
        def state():
            return (
                torch._C._get_privateuse1_backend_name(), torch.Tensor.data,
                *map(torch.__dict__.get, names), list(torch.serialization._package_registry),
                torch.nn.parameter.UninitializedTensorMixin.materialize,
                *(getattr(torch.accelerator, n) for n in torch.accelerator.__all__),
                list(_foreach_supported_types), torch._C._is_multithreading_enabled(),
            )
        before = state()
        import simgpu
        from simgpu import autocast, backend, kernels, module, nodata, serialize, tensor, worker
        for _ in range(2):
            assert simgpu.unavailable_reason() is None and not simgpu.enabled()
        assert all(a is b or a == b for a, b in zip(before, state(), strict=True))
        assert torch.Tensor.data.__class__.__name__ == "getset_descriptor" and not hasattr(torch, "sim")
        print(torch._C._get_privateuse1_backend_name(), torch.accelerator.is_available())
        """
    )
    assert out.split()[0] == "privateuseone"


def test_a_fresh_process_has_no_device_until_it_is_enabled_and_may_enable_it_twice():
    out = python(
        """
        import torch
        import simgpu
        for ask in (simgpu.clock, simgpu.profile):
            try:
                ask()
            except RuntimeError as error:
                print(error)
        for _ in range(2):
            assert simgpu.enable(devices=2) == torch.device("sim", 0)
            assert simgpu.enabled() and simgpu.unavailable_reason() is None
        print(torch.sim.device_count(), torch.ones(2, device="sim:1"))
        """
    )
    missing = "There is no simulated device: call simgpu.enable() first.\n"
    assert out == missing * 2 + "2 tensor([1., 1.], device='sim:1')\n"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("torch.utils.rename_privateuse1_backend('other')", "already has a device 'other'"),
        (
            "del torch.utils.backend_registration._setup_privateuseone_for_python_backend",
            "lacks what the simulated device rests on",
        ),
    ],
)
def test_a_pytorch_that_cannot_have_the_device_is_one_sentence(change, reason):
    out = python(
        f"""
        import torch
        {change}
        import simgpu
        print(simgpu.unavailable_reason())
        try:
            simgpu.enable()
        except RuntimeError as error:
            assert str(error) == simgpu.unavailable_reason() and not simgpu.enabled()
        """
    )
    assert reason in out and out.count("\n") == 1


def test_a_checkpoint_opens_where_there_is_no_device(tmp_path):
    net = torch.nn.Linear(2, 2).sim()
    torch.save({"net": net.state_dict(), "x": torch.ones(3, device="sim:1")}, tmp_path / "file.pt")
    out = python(
        """
        import sys, torch
        loaded = torch.load(sys.argv[1], map_location="cpu", weights_only=True)
        print(loaded["x"], loaded["net"]["weight"].device, type(loaded["x"]).__name__)
        try:
            torch.load(sys.argv[1])
        except RuntimeError as error:
            print("map_location" in str(error), "sim:" in str(error))
        """,
        tmp_path / "file.pt",
    )
    assert out.splitlines()[0] == "tensor([1., 1., 1.]) cpu Tensor"
    # a process that enables the device opens it on the device
    out = python(
        """
        import sys, torch
        import simgpu
        simgpu.enable(devices=2)
        print(torch.load(sys.argv[1])["x"])
        """,
        tmp_path / "file.pt",
    )
    assert out == "tensor([1., 1., 1.], device='sim:1')\n"


def test_the_process_ends_quietly_with_tensors_alive():
    out = python(
        """
        import torch
        import simgpu
        simgpu.enable()
        x = torch.ones(1000, device="sim", requires_grad=True)
        keep = {"x": x, "y": (x * 2).sum(), "net": torch.nn.Linear(3, 3).sim(), "stream": torch.sim.Stream()}
        keep["self"] = keep
        counting = simgpu.count().__enter__()
        print("end")
        """
    )
    assert out == "end\n"


# --- Children of this process


def _use_the_device(connection, device):
    """Compute on the device in a child process, and send the result or the error message."""
    try:
        if device == "enable":
            device = simgpu.enable()
        connection.send(str((torch.ones(2, device=device) + 1).tolist()))
    except RuntimeError as error:
        connection.send(str(error))


def child(method, target, *arguments):
    """Run ``target(connection, *arguments)`` in a child process, and return what it sends."""
    context = multiprocessing.get_context(method)
    parent_end, child_end = context.Pipe()
    process = context.Process(target=target, args=(child_end, *arguments))
    process.start()
    assert parent_end.poll(60), "the child did not answer"
    answer = parent_end.recv()
    process.join(20)
    return answer


def _needs_fork():
    """Skip the test if this system cannot fork."""
    if "fork" not in multiprocessing.get_all_start_methods():
        skip("this system cannot fork", "2028-12-31")


def test_a_forked_child_gets_cudas_sentence():
    _needs_fork()
    torch.ones(1, device=SIM)
    answer = child("fork", _use_the_device, "sim")
    assert answer == (
        "Cannot re-initialize sim in forked subprocess. To use sim with multiprocessing, you must use the "
        "'spawn' start method"
    )
    assert (torch.ones(2, device=SIM) + 1).tolist() == [2, 2]  # here it goes on


def _use_what_came_along(connection, x):
    """Use an inherited device tensor in a child process; send "refused", "used" or another error."""
    for use in (lambda: x + 1, lambda: x.cpu(), lambda: x.sum().item(), lambda: x.to("sim:1")):
        try:
            use()
            connection.send("used")
            return
        except RuntimeError as error:
            if "'spawn' start method" not in str(error):
                connection.send(str(error))
                return
    connection.send("refused")


def test_a_forked_child_cannot_use_its_parents_tensors():
    _needs_fork()
    assert child("fork", _use_what_came_along, torch.ones(2, device=SIM)) == "refused"


def test_a_spawned_child_has_a_device_of_its_own():
    assert child("spawn", _use_the_device, "enable") == "[2.0, 2.0]"


class Squares(torch.utils.data.Dataset):
    """A dataset whose items have a dict with the square of their index and the worker's process id."""

    def __len__(self):
        return 8

    def __getitem__(self, i):
        return torch.tensor([float(i)]), {"square": torch.tensor(i * i), "process": os.getpid()}


@pytest.mark.parametrize("method", [None, "fork", "spawn"])
def test_a_data_loader_feeds_the_device(method):
    if method and method not in multiprocessing.get_all_start_methods():
        skip(f"no {method} here", until="2027-11-30")
    torch.ones(1, device=SIM)
    loader = torch.utils.data.DataLoader(
        Squares(),
        batch_size=3,
        num_workers=2 if method else 0,
        pin_memory=True,
        multiprocessing_context=method,
    )
    seen, processes = [], set()
    with simgpu.count() as counts:
        for x, more in loader:
            assert x.is_pinned() and more["square"].is_pinned()
            moved = x.to(SIM, non_blocking=True), more["square"].to(SIM, non_blocking=True)
            seen += [(a.item(), b.item()) for a, b in zip(moved[0][:, 0], moved[1], strict=True)]
            processes |= set(more["process"].tolist())
    assert seen == [(float(i), i * i) for i in range(8)]
    assert (os.getpid() in processes) is (method is None)
    to_device = [copy for copy in counts.copies if copy.code == "h2d"]
    assert len(to_device) == 6 and all(copy.pinned and copy.non_blocking for copy in to_device)


class OnTheDevice(Squares):
    """A dataset that puts its items on the simulated device."""

    def __getitem__(self, i):
        return torch.tensor([float(i)]).to(SIM)


def test_a_dataset_that_uses_the_device_in_a_forked_worker_is_refused():
    _needs_fork()
    torch.ones(1, device=SIM)
    loader = torch.utils.data.DataLoader(OnTheDevice(), num_workers=1, multiprocessing_context="fork")
    with pytest.raises(RuntimeError, match="Cannot re-initialize sim in forked subprocess"):
        next(iter(loader))
    assert next(iter(torch.utils.data.DataLoader(OnTheDevice(), batch_size=2))).is_sim


def test_threads_use_the_device_too():
    def work(_):
        x = torch.ones(4, device="sim:1", requires_grad=True)
        (x * x).sum().backward()
        return x.grad.tolist()

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(work, range(4), timeout=30)) == [[2, 2, 2, 2]] * 4


def test_a_restarted_kernel_has_an_empty_device(tmp_path):
    """What a learner does first when something is odd."""
    manager, client = start_new_kernel(
        kernel_name="python3", env={**os.environ, "PYTHONPATH": HOME}, cwd=str(tmp_path)
    )

    def run(code):
        printed = []
        client.execute_interactive(
            code,
            timeout=60,
            output_hook=lambda message: printed.append(message["content"].get("text", "")),
        )
        return "".join(printed)

    try:
        begin = "import torch\nimport simgpu\nsimgpu.enable()\n"
        held = begin + "kept = torch.ones(1000, device='sim')\nprint(torch.sim.memory_allocated())"
        assert run(held) == run("print(torch.sim.memory_allocated())") == "4096\n"
        manager.restart_kernel(now=True)
        client.wait_for_ready(timeout=60)
        assert run(begin + "print(torch.sim.memory_allocated())") == "0\n"
        assert run(held) == "4096\n"
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
