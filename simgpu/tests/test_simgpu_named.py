"""Programs that say ``"cuda"`` run unchanged on the simulated GPU, and by ``python -m simgpu run``."""

import json
import os
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest
import torch
from support import python
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

import simgpu
from simgpu import named

ROOT = Path(simgpu.__file__).parents[1]


pytestmark = pytest.mark.usefixtures("without_a_real_gpu")


@pytest.fixture
def cuda():
    yield simgpu.enable("T4", 2, named="cuda")
    named.disable()


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 5))


def trained(device, batches):
    model = network().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    for x, y in batches:
        optimizer.zero_grad()
        cross_entropy(model(x.to(device)), y.to(device)).backward()
        optimizer.step()
    return model


@pytest.fixture
def batches():
    torch.manual_seed(1)
    return [(torch.randn(8, 20), torch.randint(5, (8,))) for _ in range(4)]


def test_a_training_by_name_has_the_cpus_weights(cuda, batches):
    model = trained("cuda", batches)
    assert {p.device for p in model.parameters()} == {torch.device("cuda:0")}
    assert all(p.is_cuda and p.device.type == "cuda" for p in model.parameters())
    for mine, cpus in zip(model.parameters(), trained("cpu", batches).parameters(), strict=True):
        torch.testing.assert_close(mine.cpu(), cpus)


def test_torch_cuda_answers_for_the_simulated_card(cuda):
    assert torch.cuda.is_available() and torch.cuda.device_count() == 2
    assert "T4" in torch.cuda.get_device_name(1)
    before = torch.cuda.memory_allocated()
    x = torch.ones(1024, 1024, device="cuda")
    assert torch.cuda.memory_allocated() - before == x.nbytes
    assert torch.cuda.mem_get_info()[0] < torch.cuda.get_device_properties(0).total_memory
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    x @ x
    end.record()
    torch.cuda.synchronize()
    assert start.elapsed_time(end) > 0
    assert x.cuda(1).device == torch.device("cuda", 1)
    assert "device='cuda:0'" in repr(x[:1, :1])


def test_errors_say_cuda(cuda):
    x = torch.ones(3, device="cuda")
    with pytest.raises(RuntimeError, match="cuda:0 and cpu"):
        x + torch.ones(3)
    with pytest.raises(TypeError, match="can't convert cuda:0 device type tensor to numpy"):
        x.numpy()
    with pytest.raises(torch.OutOfMemoryError, match="CUDA out of memory"):
        torch.empty(2**40, device="cuda")


def test_float16_with_a_scaler_trains(cuda, batches):
    model = network().cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cuda")
    before = model[0].weight.clone()
    for x, y in batches:
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=torch.float16):
            out = model(x.cuda())
            assert out.dtype is torch.float16
            loss = cross_entropy(out, y.cuda())
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    assert not torch.equal(before, model[0].weight)


def test_checkpoints_go_both_ways(cuda, tmp_path):
    model = network().cuda()
    torch.save(model.state_dict(), tmp_path / "cuda.pt")
    torch.save(network().state_dict(), tmp_path / "cpu.pt")
    there = torch.load(tmp_path / "cpu.pt", map_location="cuda", weights_only=True)
    assert {tensor.device.type for tensor in there.values()} == {"cuda"}
    back = torch.load(tmp_path / "cuda.pt", map_location="cpu", weights_only=True)
    assert {tensor.device.type for tensor in back.values()} == {"cpu"}
    assert torch.equal(back["0.weight"], network()[0].weight)
    assert torch.load(tmp_path / "cuda.pt", weights_only=True)["0.weight"].is_cuda


def test_loaders_pin_threads_and_defaults_know_the_name(cuda):
    data = TensorDataset(torch.arange(8.0))
    (batch,) = next(iter(DataLoader(data, batch_size=8, pin_memory=True)))
    assert batch.is_pinned() and batch.to("cuda", non_blocking=True).sum().item() == 28
    seen = []
    thread = threading.Thread(target=lambda: seen.append(torch.ones(2, device="cuda").device))
    thread.start()
    thread.join()
    assert seen == [torch.device("cuda:0")]
    with torch.device("cuda"):
        assert torch.zeros(2).is_cuda
    generator = torch.Generator("cuda").manual_seed(0)
    assert torch.rand(2, device="cuda", generator=generator).is_cuda


def test_more_cards_can_be_enabled_while_the_names_are_on(cuda):
    simgpu.enable("T4", 4, named="cuda")
    assert torch.cuda.device_count() == 4
    assert torch.ones(2, device="cuda:3").sum().item() == 2


def test_without_the_name_all_is_as_before(cuda):
    named.disable()
    assert not torch.cuda.is_available()
    assert torch.ones(2, device="sim").device.type == "sim"
    assert simgpu.enable("T4").type == "sim"


@pytest.mark.slow
def test_what_was_made_by_name_lasts_when_the_name_comes_back(cuda):
    stream, generator = torch.cuda.Stream(), torch.Generator("cuda")
    double = torch.compile(lambda x: 2 * x)
    assert double(torch.ones(2, device="cuda")).is_cuda
    named.disable()
    assert "sim:0" in repr(stream) and generator.device.type == "sim"
    compiled = []
    torch.compile(lambda x: x + 1, backend=lambda graph, _: compiled.append(graph) or graph.forward)(
        torch.ones(2)
    )
    assert len(compiled) == 1  # as ever, on the CPU
    simgpu.enable("T4", 2, named="cuda")
    assert "cuda:0" in repr(stream) and generator.device == torch.device("cuda:0")
    with torch.cuda.stream(stream):
        assert double(torch.rand(2, device="cuda", generator=generator)).is_cuda


@pytest.mark.slow
def test_beside_a_real_gpu_the_name_is_refused_and_nothing_is_registered():
    output = python("""
        import torch, simgpu

        torch.cuda.is_available = lambda: True
        try:
            simgpu.enable("T4", named="cuda")
        except RuntimeError as error:
            print(error)
        print(torch._C._get_privateuse1_backend_name())
    """)
    assert "in this process 'cuda' means that one" in output
    assert output.endswith("\nprivateuseone\n")


PROGRAM = """
import sys
import torch
from torch import nn

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
model = nn.Linear(64, 64).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
x = torch.randn(32, 64, device=device)
for _ in range(6):
    optimizer.zero_grad()
    loss = model(x).square().mean()
    loss.backward()
    optimizer.step()
    loss.item()
print(device, torch.cuda.get_device_name(), sys.argv[1:])
"""


def run(tmp_path, program, *words):
    (tmp_path / "train.py").write_text(textwrap.dedent(program), encoding="utf-8")
    return subprocess.run(
        [sys.executable, "-m", "simgpu", "run", *words],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.mark.slow
def test_a_file_runs_unchanged_and_is_reported(tmp_path):
    words = ["--card", "A100", "--json", "report.json", "--fits", "1MB", "train.py", "--lr", "3"]
    done = run(tmp_path, PROGRAM, *words)
    assert done.returncode == 3, done.stderr  # more than 1 MB
    assert "cuda Simulated NVIDIA A100" in done.stdout and "['--lr', '3']" in done.stdout
    assert "train.py:15 waits" in done.stdout
    report = json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))
    line = PROGRAM.splitlines().index("    loss.item()") + 1
    assert [(f["kind"], f["line"]) for f in report["findings"]] == [("wait", line)]


def test_what_runs_out_of_memory_is_reported_too(tmp_path):
    done = run(
        tmp_path, "import torch\nx = torch.ones(2**22, device='cuda')\n", "--memory", "8MB", "train.py"
    )
    assert done.returncode == 1
    assert "CUDA out of memory" in done.stderr
    assert "It ran out of memory at train.py:2" in done.stdout


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["nothing.py"], "There is no file nothing.py in"),
        (["--card", "T44", "train.py"], "T4"),
        (["--fits", "lots", "train.py"], "lots"),
        (["--compare", "A100,H10", "train.py"], "H100"),
    ],
)
def test_a_mistake_in_the_call_is_one_sentence_before_anything_runs(tmp_path, words, sentence):
    done = run(tmp_path, "print('ran')\n", *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert sentence in done.stderr and len(done.stderr.splitlines()) == 1


def test_a_pytorch_without_cuda_runs_the_same_programs(tmp_path):
    """Delete what a build for the CPU lacks: PyTorch's modules ask for it when they are imported."""
    (tmp_path / "train.py").write_text(textwrap.dedent(PROGRAM), encoding="utf-8")
    start = """
    import sys
    import torch

    for name in dir(torch._C):
        if name.startswith("_cuda_"):
            delattr(torch._C, name)
    assert not torch.cuda._is_compiled() and "torch._dynamo" not in sys.modules
    from simgpu.run import main

    sys.exit(main(["run", "train.py"]))
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(start)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert "cuda Simulated NVIDIA T4" in done.stdout, done.stdout


def test_a_dry_run_computes_nothing(tmp_path):
    program = "import torch\nprint((torch.ones(2**15, 2**15, device='cuda') + 1).sum().item())\n"
    done = run(tmp_path, program, "--dry", "train.py")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("0.0") and "8 GiB" in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize(("gib", "status"), [(13, 0), (15, 3)])
def test_fits_takes_the_name_of_a_card(tmp_path, gib, status):
    program = f"import torch\nx = torch.empty({gib} * 2**28, device='cuda')\n"
    done = run(tmp_path, program, "--dry", "--card", "A100", "--fits", "t4", "--no-report", "train.py")
    assert (done.returncode, done.stdout) == (status, "")


@pytest.mark.slow
def test_ranks_reduce_by_the_name_nccl(tmp_path):
    program = """
    import os
    import torch
    import torch.distributed as dist

    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    begin = dist.init_process_group
    begin("nccl")
    x = torch.full((3,), float(dist.get_rank() + 1), device="cuda")
    dist.all_reduce(x)
    with open(f"rank{dist.get_rank()}.txt", "w") as file:  # two processes' prints may be mixed
        print(dist.get_backend(), x.device, x.tolist(), file=file)
    dist.barrier()
    dist.destroy_process_group()
    """
    done = run(tmp_path, program, "--ranks", "2", "--no-report", "train.py")
    assert done.returncode == 0, done.stderr
    for rank in range(2):
        written = (tmp_path / f"rank{rank}.txt").read_text(encoding="utf-8")
        assert written == f"nccl cuda:{rank} [3.0, 3.0, 3.0]\n"


@pytest.mark.slow
def test_processes_that_the_program_spawns_have_the_devices_too(tmp_path):
    program = """
    import os
    import torch
    import torch.distributed as dist
    import torch.multiprocessing as mp

    DEVICE = "cuda" if torch.cuda.is_available() else "cpu"  # at import, in each process

    def main(rank):
        torch.cuda.set_device(rank)
        begin = dist.init_process_group
        begin("nccl", f"file://{os.getcwd()}/store", rank=rank, world_size=2)
        x = torch.full((2,), rank + 1.0, device=DEVICE)
        dist.all_reduce(x)
        with open(f"rank{rank}.txt", "w") as file:
            print(x.device, x.tolist(), file=file)
        dist.destroy_process_group()

    if __name__ == "__main__":
        mp.spawn(main, nprocs=2)
    """
    done = run(tmp_path, program, "--cards", "2", "train.py")
    assert done.returncode == 0, done.stderr
    for rank in range(2):
        assert (tmp_path / f"rank{rank}.txt").read_text(encoding="utf-8") == f"cuda:{rank} [3.0, 3.0]\n"
    assert "The program started 2 processes." in done.stdout


def test_sleep_keeps_the_current_stream_busy(cuda):
    side = torch.cuda.Stream()
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    with torch.cuda.stream(side):
        start.record()
        torch.cuda._sleep(10**8)  # the T4's clock is 1.59 GHz: 63 ms
        end.record()
    assert not side.query(), "the CPU does not wait for it"
    assert torch.cuda.current_stream().query(), "another stream is not busy"
    side.synchronize()
    assert start.elapsed_time(end) == pytest.approx(1e8 / 1.59e9 * 1e3, rel=0.01)


def test_a_segment_of_a_snapshot_says_that_it_belongs_to_no_pool(cuda):
    x = torch.ones(4, device="cuda")
    assert [segment["segment_pool_id"] for segment in torch.cuda.memory_snapshot()] == [(0, 0)]
    del x


@pytest.mark.filterwarnings("ignore:torch.set_default_tensor_type:UserWarning")
def test_a_cpu_type_as_default_leaves_no_mode_behind(cuda):
    before = torch._C._len_torch_function_stack()
    torch.set_default_tensor_type(torch.cuda.DoubleTensor)
    assert torch.ones(1).type() == "torch.cuda.DoubleTensor"
    torch.set_default_tensor_type("torch.FloatTensor")
    assert torch.ones(1).type() == "torch.FloatTensor"
    assert torch._C._len_torch_function_stack() == before


@pytest.mark.parametrize(("source", "target"), [("cpu", "cuda"), ("cuda", "cpu"), ("cuda:0", "cuda:1")])
def test_foreach_copies_lists_between_devices(cuda, source, target):
    sent = [torch.arange(3.0, device=source), torch.ones(2, 2, device=source)]
    here = [torch.zeros(3, device=target), torch.zeros(2, 2, device=target)]
    torch._foreach_copy_(here, sent)
    assert [x.tolist() for x in here] == [[0.0, 1.0, 2.0], [[1.0, 1.0], [1.0, 1.0]]]
    if source == "cpu":
        with simgpu.count() as counted:
            torch._foreach_copy_(here, sent, non_blocking=True)
        assert counted.copies_to_device == 2
