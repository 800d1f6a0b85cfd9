"""Lesson 06: its checks judge what answers do, and the references hold with PyTorch's own parts."""

from __future__ import annotations

import inspect
import pickle
import threading
from pathlib import Path

import nbformat
import pytest
import torch
from answers import right, wrong
from answers.lesson06.ring_all_reduce import ring_averaging, ring_by_rank_0
from real_ranks import ROOT, run_on_ranks
from torch import nn

from course_lessons.lesson06 import drawings as in_drawings
from course_lessons.lesson06 import flight
from course_lessons.lesson06 import unhang as in_unhang
from course_lessons.lesson06.rescue import rescue
from course_lessons.lesson06.ring_all_reduce import ring_all_reduce
from course_lessons.lesson06.shard import shard
from course_lessons.lesson06.unhang import unhang
from course_lessons.shared import traces
from course_utils.exercises import lesson, todo
from simgpu import cluster
from simgpu.clock import Span

EX = lesson("06")


def judged(name, answer):
    result = getattr(EX, name).result(answer)
    return result.outcome, result.diagnosis


# --- what is said of answers


@pytest.mark.parametrize("name", ["average_gradients", "accumulate", "unhang", "ring_all_reduce"])
def test_an_answer_on_the_cluster_is_told_from_a_stub_and_from_a_fault_of_its_own(name):
    arguments = ", ".join(inspect.signature(getattr(EX, name).reference).parameters)
    for body, outcome in (
        ("todo()", ("not_tried", "")),
        ("1 / 0", ("raised", "ZeroDivisionError")),
    ):
        assert judged(name, eval(f"lambda {arguments}: {body}", {"todo": todo})) == outcome


def test_a_hang_is_said_within_a_second_with_the_learners_lines():
    given = wrong(EX.unhang)["one-rank"]
    result = EX.unhang.result(given)
    (seen,) = (value for name, value in result.details if name == "Seen")
    lines = Path(given.__code__.co_filename).read_text().splitlines()
    line = lines.index("        dist.barrier()") + 1
    assert f"rank 0 waits in barrier (its 3rd call, line {line})" in seen
    assert "rank 1 has finished" in seen


def test_an_endless_loop_on_one_rank_is_stopped(monkeypatch):
    def spins(model, batches, dist, log):
        while dist.get_rank() == 1:
            pass
        return unhang(model, batches, dist, log)

    with monkeypatch.context() as short:
        short.setattr(EX.unhang, "limit", 0.5)
        assert judged("unhang", spins) == ("not_yet", "too-slow")
    assert judged("unhang", unhang) == ("right", "")


def test_a_check_on_the_cluster_leaves_the_number_of_threads():
    before = torch.get_num_threads()
    for exercise in (EX.average_gradients, EX.unhang):
        exercise.result(exercise.reference)
        exercise.result(lambda *_: 1 / 0)
    assert torch.get_num_threads() == before


def test_the_code_to_fix_in_the_notebook_has_both_faults():
    cells = nbformat.read(ROOT / "notebooks" / "06_several_gpus.ipynb", as_version=4).cells
    (source,) = (c.source for c in cells if "def unhang(" in c.source)
    lines = [line for line in source.splitlines() if "return todo()" not in line]
    names = {**vars(in_unhang), "ex": None}
    exec("\n".join(line for line in lines if not line.startswith("ex.")), names)
    assert judged("unhang", names["unhang"]) == ("not_yet", "one-rank")
    half = [line for line in lines if "barrier" not in line and not line.startswith("ex.")]
    exec("\n".join(half), names)
    assert judged("unhang", names["unhang"]) == ("not_yet", "unequal-loops")


# --- the references against PyTorch


@pytest.mark.parametrize(("n", "ranks"), [(12, 3), (10, 4), (3, 8), (1, 1), (50, 7)])
def test_shard_gives_the_rows_of_the_distributed_sampler(n, ranks):
    by_sampler = right(EX.shard)["by the sampler"]
    for rank in range(ranks):
        for epoch in (0, 5):
            assert shard(n, rank, ranks, epoch, 4) == by_sampler(n, rank, ranks, epoch, 4)


@pytest.mark.slow
def test_rescue_takes_what_ddp_and_compile_really_save():
    def model():
        return nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))

    plain = model()
    (wrapped,) = cluster.run(lambda dist: cluster.DistributedDataParallel(model(), dist), 1).results
    compiled = torch.compile(model())
    (both,) = cluster.run(lambda dist: cluster.DistributedDataParallel(compiled, dist), 1).results
    for saved in (plain, wrapped, compiled, both, torch.compile(wrapped)):
        state = saved.state_dict()
        assert plain.load_state_dict(rescue(state, plain)).missing_keys == []


@pytest.mark.parametrize("ranks", [2, 3, 6])
def test_the_ring_reaches_the_target_and_costs_what_all_reduce_does(ranks):
    def by(function):
        return cluster.run(lambda dist: function(torch.ones(12 * ranks), dist), ranks=ranks)

    ring, whole = by(ring_all_reduce), by(lambda x, dist: dist.all_reduce(x))
    assert ring.steps == 2 * (ranks - 1)
    assert set(ring.sent) == {2 * (ranks - 1) * 12 * 4}
    assert ring.seconds == pytest.approx(whole.seconds)


PROGRAM = """
import copy
import gc
import sys
import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from course_lessons.lesson06 import accumulate, average_gradients, ring_all_reduce, unhang
from course_lessons.shared.checking import made_batches

dist.init_process_group("gloo")
rank, ranks = dist.get_rank(), dist.get_world_size()

for shape in ((12,), (7, 5), (2,)):
    x, right = (torch.arange(float(torch.Size(shape).numel())).view(shape) * 10**rank for _ in range(2))
    ring_all_reduce.ring_all_reduce(x, dist)
    dist.all_reduce(right)
    assert torch.equal(x, right), (x, right)

unused = (), ("second.weight",), ()
model = average_gradients._model_with_gradients(rank, unused[rank])
average_gradients.average_gradients(model, dist)
before = [average_gradients._model_with_gradients(r, names) for r, names in enumerate(unused)]
for got, *each in zip(model.parameters(), *(m.parameters() for m in before)):
    if got.requires_grad:
        right = sum(p.grad for p in each if p.grad is not None) / ranks
        assert torch.allclose(got.grad, right), got

logged = []
batches = made_batches(((3,), (2, 2), ())[rank], rank)
mean = unhang.unhang(unhang._make_classifier(), batches, dist, logged.append)
assert logged == ([mean] if rank == 0 else [])

parts = [made_batches(sizes, r) for r, sizes in enumerate(((5, 3, 2), (4, 6), (10,)))]
whole = [torch.cat(tensors) for tensors in zip(*(part for own in parts for part in own))]
torch.manual_seed(0)
alone = nn.Linear(6, 3)
model = nn.parallel.DistributedDataParallel(copy.deepcopy(alone))
optimizer, other = (torch.optim.SGD(net.parameters(), lr=0.1) for net in (model, alone))
accumulate.accumulate(model, parts[rank], F.cross_entropy, optimizer)
F.cross_entropy(alone(whole[0]), whole[1]).backward()
other.step()
right, got = (nn.utils.parameters_to_vector(net.parameters()) for net in (alone, model))
assert torch.allclose(got, right, rtol=1e-4, atol=1e-6)

print(f"rank {rank} is through", flush=True)
del model
gc.collect()  # without it gloo at times aborts in the process's last moments
dist.barrier()
dist.destroy_process_group()
"""


@pytest.mark.slow
def test_the_references_run_in_real_processes(tmp_path):
    run_on_ranks(PROGRAM, 3, tmp_path)


# --- the puzzle's drawing


@pytest.mark.slow
@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (ring_all_reduce, "At the end 32 of 32 places hold the sum"),
        (wrong(EX.ring_all_reduce)["half-way"], "At the end 8 of 32 places hold the sum"),
        (ring_by_rank_0, "after each of 6 steps"),
        (ring_averaging, "At the end 0 of 32"),
        (wrong(EX.ring_all_reduce)["deadlock"], "Nothing to draw: No rank can go on: rank 0 waits"),
        (lambda x, dist: todo(), "no rank has sent anything yet"),
        (lambda x, dist: 1 / 0, "Nothing to draw: division by zero"),
        (todo(), "Nothing to draw"),
    ],
)
def test_the_puzzle_is_drawn_or_it_is_said_why_not(answer, says, monkeypatch, capsys):
    monkeypatch.setattr(in_drawings, "present", lambda figure, alt: print(alt))
    in_drawings.ring(answer)
    assert says in capsys.readouterr().out


# --- the lesson's drawings


@pytest.fixture
def shown(monkeypatch):
    before, said = set(threading.enumerate()), []
    monkeypatch.setattr(in_drawings, "present", lambda fig, alt: said.append((fig, alt)))
    yield said
    assert set(threading.enumerate()) <= before


def texts(fig):
    return " ".join(text.get_text() for ax in fig.axes for text in ax.texts)


def test_ranks_are_drawn_with_their_shares(shown):
    def program(dist):
        cluster.compute(dist, 1e-3 * (1 + dist.get_rank()), "forward")
        dist.all_reduce(torch.zeros(12_000_000))

    in_drawings.ranks(cluster.run(program, 2))
    fig, alt = shown[0]
    assert "rank 0 computes 17% and communicates 67%" in alt and "6.01 ms" in alt
    assert fig.axes[0].get_xlabel() == "ms (modelled)"
    assert "forward" in texts(fig)


def test_chunks_shows_who_holds_what(shown, capsys):
    in_drawings.chunks(cluster.run(lambda dist: ring_all_reduce(cluster.marked(dist, 5), dist), ranks=3))
    fig, alt = shown[0]
    titles = [ax.get_title(loc="left") or ax.get_title() for ax in fig.axes]
    assert titles[:5] == ["at the start", *(f"after step {k}" for k in range(1, 5))]
    assert alt.endswith("At the end 15 of 15 places hold the sum of all.")

    def twice(dist):
        x = cluster.marked(dist, 2)
        dist.all_reduce(x)
        x[0] += 1
        dist.barrier()

    in_drawings.chunks(cluster.run(twice, ranks=2))
    assert shown[1][1].endswith("At the end 2 of 4 places hold the sum of all.")
    in_drawings.chunks(cluster.run(lambda dist: None, ranks=2))
    assert "Nothing to draw" in capsys.readouterr().out and len(shown) == 2
    with pytest.raises(ValueError, match="at most 13 ranks"):
        cluster.run(lambda dist: cluster.marked(dist, 1), 14)


def test_lanes_of_real_ranks_part_computing_from_communicating(shown):
    def trace(shift, on_gpu):
        if on_gpu:
            sends = "device compute", "ncclDevKernel_AllReduce_Sum", 2 + shift, 4.0, "kernel"
            computes = "device compute", "gemm", shift, 3.0, "kernel"
        else:
            sends = "phases", "gloo:all_reduce", 2 + shift, 4.0, "phase"
            computes = "host", "aten::linear", shift, 3.0, "operation"
        calls = "host", "c10d::allreduce_", 3.0, 4.0, "operation"
        return traces.Trace([Span(*sends), Span(*computes), Span(*calls)], "measured")

    for on_gpu in (False, True):
        in_drawings.rank_lanes({0: trace(0.0, on_gpu), 1: trace(1.0, on_gpu)})
        alt = shown[-1][1]
        assert "rank 0 computes 75% and communicates 50%" in alt
        assert "rank 1 computes 50% and communicates 25%" in alt


def test_the_shared_rows_are_those_of_the_sampler(shown):
    in_drawings.shared_rows(rows=10, ranks=3, epochs=2)
    fig, alt = shown[0]
    assert "epoch 1: 5, 6, 1, 2, 0, 8, 9, 3, 7, 4, 5, 6. The last 2 repeat the first." in alt
    assert texts(fig).split()[:4] == ["4", "1", "7", "5"]


def test_a_restart_begins_with_the_epoch_after_the_checkpoint(shown):
    in_drawings.restarted(epochs=3, killed_in=2, part=0.5)
    fig, alt = shown[0]
    assert "dies in epoch 2" in alt
    assert texts(fig).split()[1::2] == ["1", "2", "3", "1", "2", "3"]


def test_buckets_fill_from_the_last_layer():
    mib = 2**20
    layers = {"first": 30 * mib, "second": 20 * mib, "third": 10 * mib, "last": 2 * mib}
    _, alt = in_drawings.buckets(layers, backward=62e-3, bandwidth=1e9)
    assert "3 buckets (bucket 0: last; bucket 1: third, second; bucket 2: first)" in alt
    middle, all_of_it = (2 * (5e-6 + size * mib / 2 / 1e9) for size in (30, 62))
    done, apart = 32e-3 + 2 * middle, 62e-3 + all_of_it  # the last bucket waits for the one before
    assert f"after {done * 1e3:.1f} ms instead of {apart * 1e3:.0f} ms" in alt


# --- what its scripts use


def test_flight_records_name_the_rank_that_left_a_call_out(tmp_path, capsys):
    flight.show(str(tmp_path))
    assert "no record" in capsys.readouterr().out
    frames = [
        {"filename": str(Path(torch.__file__).parent / "distributed" / "x.py"), "line": 1},
        {"filename": "/home/me/work/uneven.py", "line": 13},
    ]
    for rank, calls in ((0, 3), (10, 2)):
        entries = [
            {"collective_seq_id": n, "profiling_name": "gloo:all_reduce", "frames": frames}
            for n in range(1, calls + 1)
        ]
        (tmp_path / f"rank_{rank}").write_bytes(pickle.dumps({"entries": entries}))
    flight.show(str(tmp_path))
    assert capsys.readouterr().out.splitlines()[1:] == [
        "2. all_reduce in uneven.py, line 13: rank 0 called it, rank 10 called it",
        "3. all_reduce in uneven.py, line 13: rank 0 called it, rank 10 NEVER CALLED IT",
    ]
