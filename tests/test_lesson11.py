"""Lesson 11: its figures of memory and time, its checks, and its helpers in real processes."""

from __future__ import annotations

import itertools
import threading
from functools import partial

import nbformat
import pytest
import torch
import torch.distributed as torch_dist
from answers import wrong
from real_ranks import ROOT, run_on_ranks
from torch import nn

from course_lessons.lesson11 import build_sharded as in_build_sharded
from course_lessons.lesson11 import drawings as in_drawings
from course_lessons.lesson11 import timeline
from course_lessons.lesson11.memory import STAGES, bytes_per_rank
from course_lessons.lesson11.microbatches import microbatches
from course_lessons.lesson11.net import Net
from course_lessons.lesson11.sharded_bytes import sharded_bytes
from course_lessons.shared.edited import edited
from course_utils.exercises import lesson, todo
from simgpu import cluster

EX = lesson("11")
NOTEBOOK = ROOT / "notebooks" / "11_sharding.ipynb"


def judged(name, answer):
    result = getattr(EX, name).result(answer)
    return result.outcome, result.diagnosis


def cells():
    return [c for c in nbformat.read(NOTEBOOK, as_version=4).cells if c.cell_type == "code"]


# --- what a rank holds


@pytest.fixture
def fake_group():
    from torch.testing._internal.distributed import fake_pg as fake

    def begin(ranks):
        torch_dist.init_process_group("fake", rank=0, world_size=ranks, store=fake.FakeStore())

    yield begin
    torch_dist.destroy_process_group()


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 7, 16])
def test_sharded_bytes_are_those_of_fully_shard(ranks, fake_group):
    from torch.distributed import fsdp

    fake_group(ranks)
    model = nn.Sequential(nn.Linear(20, 10), nn.Linear(10, 3), nn.LayerNorm(9), nn.Conv2d(5, 2, 3))
    shapes = [tuple(p.shape) for p in model.parameters()]
    whole = sum(p.nbytes for p in model.parameters())
    fsdp.fully_shard(model, mesh=torch_dist.init_device_mesh("cpu", (ranks,)))
    for p in model.parameters():
        p.grad = torch.zeros_like(p)
    optimizer = torch.optim.Adam(model.parameters())
    optimizer.step()
    held = 0
    for p in model.parameters():
        state = optimizer.state[p]
        for tensor in (p, p.grad, state["exp_avg"], state["exp_avg_sq"]):
            held += tensor.to_local().nbytes
    assert sharded_bytes(shapes, ranks) == (4 * whole, held)


def test_bytes_per_rank_divide_more_with_each_stage():
    whole = bytes_per_rank(1e9)
    assert sum(whole.values()) == 16e9
    totals = [sum(bytes_per_rank(1e9, 8, stage).values()) for stage in range(len(STAGES))]
    assert totals == [16e9, 9e9, 5.5e9, 2e9]
    assert sum(bytes_per_rank(1e9, 8, 3, torch.bfloat16).values()) == 1e9
    shapes = [(64, 32), (64,)]  # 64 divides: the exercise and the figure agree
    n = 64 * 32 + 64
    both = [sum(bytes_per_rank(n, 4, stage).values()) for stage in (0, 3)]
    assert tuple(both) == sharded_bytes(shapes, 4)
    for ranks, stage in ((0, 0), (2, 4), (2, -1)):
        with pytest.raises(ValueError, match="ranks, stage"):
            bytes_per_rank(1, ranks, stage)


def test_the_network_has_the_parameters_that_the_lesson_names():
    with torch.device("meta"):
        count = sum(p.numel() for p in Net().parameters())
    text = NOTEBOOK.read_text(encoding="utf-8")
    assert f"{count:,} parameters" in text


# --- what a step does


def test_a_layer_computes_after_it_was_gathered_and_no_lane_does_two_things():
    for reshard in (True, False):
        for gather, compute in ((1.0, 1.5), (3.0, 1.0), (0.1, 2.0)):
            made = timeline.step(5, gather, compute, reshard)
            for lane in (timeline.NETWORK, timeline.COMPUTE):
                bars = sorted((b for b in made.bars if b.lane == lane), key=lambda b: b.start)
                assert all(a.end <= b.start + 1e-9 for a, b in itertools.pairwise(bars))
            for bar in made.bars:
                if bar.what in ("forward", "backward"):
                    gathered = [b for b in made.bars if (b.what, b.layer) == ("gather", bar.layer)]
                    assert min(b.end for b in gathered) <= bar.start
            calls = [sum(b.what == what for b in made.bars) for what in ("gather", "scatter")]
            assert calls == [10 if reshard else 5, 5]
            assert made.whole[-1] == (made.seconds, 0)


@pytest.mark.parametrize("layers", [4, 8, 32])
def test_freeing_after_forward_bounds_what_is_whole(layers):
    freed, kept = (timeline.step(layers, reshard=reshard) for reshard in (True, False))
    assert freed.peak == 3 and kept.peak == layers + 1
    assert freed.seconds >= kept.seconds


# --- the exercises


def test_the_code_to_mend_in_the_notebook_has_its_faults():
    (source,) = (c.source for c in cells() if "def build_sharded(" in c.source)
    lines = [line for line in source.splitlines() if "return todo()" not in line]
    names = dict(vars(in_build_sharded))
    exec("\n".join(line for line in lines if not line.startswith("ex.")), names)
    assert judged("build_sharded", names["build_sharded"]) == ("not_yet", "whole-first")
    on_meta = "\n".join(lines).replace("make_net().to(device)", "make_net()")
    on_meta = on_meta.replace("    net = ", '    with torch.device("meta"):\n        net = ')
    exec(on_meta[: on_meta.index("\n\n")], names)
    assert judged("build_sharded", names["build_sharded"]) == ("not_yet", "one-group")


def test_build_sharded_holds_with_pytorchs_own(fake_group):
    from torch.distributed import fsdp
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor

    fake_group(4)
    on_cpu = partial(fsdp.fully_shard, mesh=init_device_mesh("cpu", (4,)))  # whatever else is there
    net = in_build_sharded.build_sharded(Net, on_cpu, torch.device("cpu"))
    assert all(isinstance(p, DTensor) and p.device.type == "cpu" for p in net.parameters())
    groups = [m for m in net.modules() if isinstance(m, fsdp.FSDPModule)]
    assert groups == [net, *net.blocks]
    once = "fully_shard(net)"
    twice = edited(in_build_sharded.build_sharded, {once: f"{once}\n{once}"})
    with pytest.raises(AssertionError, match="has already been applied"):
        twice(Net, on_cpu, torch.device("cpu"))
    assert judged("build_sharded", twice)[0] == "raised"


@pytest.mark.parametrize("stub", [lambda *_: todo(), todo()])
def test_stubs_are_not_tried(stub):
    for exercise in EX:
        assert exercise.result(stub).outcome == "not_tried"


def test_a_rank_that_makes_another_call_is_told():
    result = EX.column_parallel.result(wrong(EX.column_parallel)["one-rank"])
    assert result.diagnosis == "one-rank"
    assert "all_gather" in str(result.details)


def test_microbatches_fill_the_pipeline_of_the_lesson():
    (source,) = (c.source for c in cells() if "def pipeline(" in c.source)
    names = {"cluster": cluster, "torch": torch}
    exec(source[: source.index("\n\n\n")], names)
    for stages, most in ((4, 0.2), (3, 0.5), (6, 0.3)):
        micro = microbatches(stages, most)
        for count, fits in ((micro, True), (micro - 1, False)):
            if count < 1:
                continue
            run = cluster.run(names["pipeline"], stages, latency=0, bandwidth=1e15, arguments=(count,))
            idle = 1 - 3e-3 * count / run.seconds
            assert (idle <= most + 1e-6) == fits


# --- the drawings


@pytest.fixture
def shown(monkeypatch):
    before, said = set(threading.enumerate()), []
    monkeypatch.setattr(in_drawings, "present", lambda fig, alt: said.append((fig, alt)))
    yield said
    assert set(threading.enumerate()) <= before


def test_memory_is_drawn_with_its_sums():
    cases = {"all": bytes_per_rank(8e9), "part": bytes_per_rank(8e9, 8, 3)}
    fig, alt = in_drawings.memory(cases, card=80e9)
    assert "all 128 GB; part 16 GB" in alt and "80 GB" in alt
    assert fig.axes[0].get_xlabel() == "GB on each rank"


def test_a_step_is_drawn_both_ways():
    fig, alt = in_drawings.fsdp_step()
    assert "3 layers or gradients whole at most" in alt and "5 layers or gradients" in alt
    assert [ax.get_title(loc="left") for ax in fig.axes] == [
        "reshard_after_forward=True",
        "reshard_after_forward=False",
    ]


def test_a_mesh_a_pipeline_and_a_triangle_are_drawn(shown):
    in_drawings.mesh({"shard": 2, "tensor": 4}, {"shard": "cut", "tensor": "split"})
    texts = {text.get_text() for text in shown[0][0].axes[0].texts}
    assert {f"rank {rank}" for rank in range(8)} <= texts and "2 × 4" in shown[0][1]

    def two(dist):
        cluster.compute(dist, 1e-3 * (1 + dist.get_rank()), "F0")

    in_drawings.pipeline(cluster.run(two, ranks=2))
    assert "2 stages" in shown[1][1] and "idle for 25%" in shown[1][1]
    in_drawings.causal({"in order": [[0, 1], [2, 3]], "both": [[0, 3], [1, 2]]})
    assert "in order: the ranks have 25%, 75%" in shown[2][1]
    assert "both: the ranks have 50%, 50%" in shown[2][1]


# --- the scripts' helpers, in real processes

PROGRAM = """
import torch
import torch.distributed as dist
from shard import build
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel as DDP
from course_lessons.lesson11 import ranks
from course_lessons.lesson11.net import Net
from course_lessons.lesson11.sent import Sent

torch._C._get_accelerator = lambda: torch.device("cuda")  # one GPU, and two ranks on the CPU
device = ranks.start()
assert {p.device.type for p in build(device).parameters()} == {"cpu"}
on_cpu = dist.init_device_mesh("cpu", (2,))
torch.manual_seed(0)
whole = Net(width=16)
net = Net(width=16)
net.load_state_dict(whole.state_dict())
for module in (*net.blocks, net):
    fully_shard(module, mesh=on_cpu, reshard_after_forward=True)
x = torch.rand(4, 784)
count = sum(p.numel() for p in net.parameters())
with Sent() as sent:
    net(x).square().mean().backward()
assert sent.calls == {"all_gather": 6, "reduce_scatter": 3}, sent.calls
assert 12 * count <= sent.bytes.total() < 12.3 * count  # what does not divide is padded
whole(x).square().mean().backward()
for own, right in zip(net.parameters(), whole.parameters()):
    assert torch.allclose(own.grad.full_tensor(), right.grad, atol=1e-6)
norm = torch.nn.utils.clip_grad_norm_(net.parameters(), 1e9).full_tensor()
right = torch.nn.utils.clip_grad_norm_(whole.parameters(), 1e9)
assert torch.allclose(norm, right)
net.zero_grad()
net.set_requires_gradient_sync(False)
net(x).square().mean().backward()
kept = sum(g.nbytes for g in ranks._gradients(net))
assert kept == 4 * count, (kept, count)
ranks.seed(device)
first = torch.rand(3)
each = [torch.empty(3) for _ in range(2)]
dist.all_gather(each, first)
assert not torch.equal(*each)
print(f"rank {dist.get_rank()} is through", flush=True)
del net, whole
ranks.stop()
"""


@pytest.mark.slow
def test_the_helpers_count_what_real_ranks_send(tmp_path, monkeypatch):
    monkeypatch.setenv("DEVICE", "cpu")
    (shard,) = (c.source for c in cells() if c.source.startswith("%%writefile work/shard.py"))
    (tmp_path / "shard.py").write_text(shard.partition("\n")[2], encoding="utf-8")
    run_on_ranks(PROGRAM, 2, tmp_path)


FOUR_RANKS = """
import copy
import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor import parallel as tp
from torch.nn import functional as F
from course_lessons.lesson11 import ranks
from course_lessons.lesson11.net import Block
from course_lessons.lesson11.sent import Sent

ranks.start()
mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("shard", "tensor"))
torch.manual_seed(0)
whole, x, last = Block(64), torch.rand(8, 64), torch.nn.Linear(64, 10)
with_norm, without_norm, own_last = (copy.deepcopy(part) for part in (whole, whole, last))
whole(x).square().sum().backward()
norm = torch.nn.utils.clip_grad_norm_(whole.parameters(), 1e9)

PLAN
tp.parallelize_module(with_norm, mesh["tensor"], plan)
fully_shard(with_norm, mesh=mesh["shard"])
with_norm(x).full_tensor().square().sum().backward()
found = torch.nn.utils.clip_grad_norm_(with_norm.parameters(), 1e9).full_tensor()
assert torch.allclose(found, norm), (found, norm)

bare = {"up": tp.ColwiseParallel(), "down": tp.RowwiseParallel()}
tp.parallelize_module(without_norm, mesh["tensor"], bare)
fully_shard(without_norm, mesh=mesh["shard"])
without_norm(x).square().sum().backward()
try:
    torch.nn.utils.clip_grad_norm_(without_norm.parameters(), 1e9)
except (RuntimeError, ValueError) as error:
    assert "mesh" in str(error), error
else:
    raise AssertionError("gradients of two meshes were clipped together")

both = init_device_mesh("cpu", (2, 2), mesh_dim_names=("machine", "shard"))
hybrid = fully_shard(Block(64), mesh=both)
with Sent() as sent:
    hybrid(x).square().mean().backward()
assert sent.bytes == {"all_gather": 132864, "reduce_scatter": 132864, "all_reduce": 66432}, sent.bytes

labels = torch.arange(8)
plain = F.cross_entropy(last(x), labels)
plain.backward()
tp.parallelize_module(own_last, mesh["tensor"], tp.ColwiseParallel(use_local_output=False))
with tp.loss_parallel():
    scores = own_last(x)
    loss = F.cross_entropy(scores, labels)
    loss.backward()
assert scores.to_local().shape == (8, 5)
assert torch.allclose(loss.full_tensor(), plain)
assert torch.allclose(own_last.weight.grad.full_tensor(), last.weight.grad, atol=1e-6)
print(f"rank {torch.distributed.get_rank()} is through", flush=True)
del with_norm, without_norm, hybrid, own_last, sent, scores, loss
ranks.stop()
"""


@pytest.mark.slow
def test_what_the_lesson_says_of_a_mesh_holds_on_four_ranks(tmp_path, monkeypatch):
    monkeypatch.setenv("DEVICE", "cpu")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    (mesh,) = (c.source for c in cells() if c.source.startswith("%%writefile work/mesh.py"))
    plan = mesh[mesh.index("tokens = Shard(0)") : mesh.index("tp.parallelize_module")]
    run_on_ranks(FOUR_RANKS.replace("PLAN", plan), 4, tmp_path)
