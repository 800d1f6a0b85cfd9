"""The simulated cluster: what it computes is what real ranks compute, and what goes wrong is said at once."""

import contextlib
import inspect
import math
import runpy
import subprocess
import sys
import threading
import time

import pytest
import torch
from support import python
from torch import nn
from torch.nn.functional import mse_loss

from simgpu import cluster
from simgpu.cluster import Deadlock, DistributedDataParallel, Mismatch

LATENCY, BANDWIDTH = 5e-6, 12e9


@pytest.fixture(autouse=True)
def no_thread_stays():
    """Assert that a test leaves no thread running."""
    before = set(threading.enumerate())
    yield
    assert set(threading.enumerate()) <= before


def rank_tensor(dist, size=6, dtype=torch.float32):
    """Return a tensor whose values differ by rank and by position."""
    return torch.arange(1, size + 1, dtype=dtype) + 10 * dist.get_rank()


def ring(x, dist):
    """All-reduce ``x`` in place by a ring of sends and receives: 2 (n - 1) steps; return it."""
    n, rank = dist.get_world_size(), dist.get_rank()
    parts = x.tensor_split(n)
    for step in range(2 * (n - 1)):
        out, into = parts[(rank - step) % n], parts[(rank - step - 1) % n]
        arriving = torch.empty_like(into)
        works = [dist.isend(out, (rank + 1) % n), dist.irecv(arriving, (rank - 1) % n)]
        for work in works:
            work.wait()
        into.copy_(into + arriving if step < n - 1 else arriving)
    return x


# --- What it computes


@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("SUM", lambda t: t.sum(0)),
        ("AVG", lambda t: t.mean(0)),
        ("PRODUCT", lambda t: t.prod(0)),
        ("MIN", lambda t: t.amin(0)),
        ("MAX", lambda t: t.amax(0)),
    ],
)
def test_all_reduce_and_reduce_by_every_operation(n, name, expected):
    def program(dist):
        op = getattr(dist.ReduceOp, name)
        everywhere, somewhere = rank_tensor(dist), rank_tensor(dist)
        dist.all_reduce(everywhere, op)
        dist.reduce(somewhere, n - 1, op=op)
        return everywhere, somewhere

    given = torch.stack([torch.arange(1.0, 7) + 10 * rank for rank in range(n)])
    for rank, (everywhere, somewhere) in enumerate(cluster.run(program, n).results):
        torch.testing.assert_close(everywhere, expected(given))
        torch.testing.assert_close(somewhere, expected(given) if rank == n - 1 else given[rank])


@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64])
def test_the_other_collectives(n, dtype):
    def program(dist):
        x, rank = rank_tensor(dist, 4, dtype), dist.get_rank()
        listed = [torch.empty_like(x) for _ in range(n)]
        dist.all_gather(listed, x)
        whole = torch.empty(n, 4, dtype=dtype)
        dist.all_gather_into_tensor(whole, x)
        gathered = [torch.empty_like(x) for _ in range(n)] if rank == n - 1 else None
        dist.gather(x, gathered, dst=n - 1)
        part = torch.empty(4, dtype=dtype)
        dist.reduce_scatter_tensor(part, torch.arange(4 * n, dtype=dtype) * (rank + 1))
        dist.barrier()
        dist.broadcast(x, src=n - 1)
        return torch.stack(listed), whole, gathered, part, x

    given = torch.stack([torch.arange(1, 5) + 10 * rank for rank in range(n)]).to(dtype)
    total = (torch.arange(4 * n) * (n * (n + 1) // 2)).to(dtype)
    for rank, (listed, whole, gathered, part, x) in enumerate(cluster.run(program, n).results):
        assert torch.equal(listed, given) and torch.equal(whole, given)
        assert gathered is None if rank < n - 1 else torch.equal(torch.stack(gathered), given)
        torch.testing.assert_close(part, total[4 * rank : 4 * rank + 4])
        assert torch.equal(x, given[n - 1])


def test_an_empty_tensor_and_a_single_number_and_nan_can_be_sent():
    def program(dist):
        values = [torch.empty(0), *map(torch.tensor, (2.0, [math.nan, 1], True))]
        for value in values[:3]:
            dist.all_reduce(value)
        dist.broadcast(values[3], 0)
        return values

    for empty, number, nan, true in cluster.run(program, 2).results:
        assert empty.numel() == 0 and number == 4 and nan[0].isnan() and nan[1] == 2 and true


def test_parameters_that_need_gradients_can_be_reduced_and_keep_their_graph():
    def program(dist):
        p = nn.Parameter(torch.ones(2) * dist.get_rank())
        dist.all_reduce(p)
        (p * p).sum().backward()
        return p.grad

    assert [grad.tolist() for grad in cluster.run(program, 2).results] == [[2, 2]] * 2


def test_a_run_is_the_same_each_time_and_leaves_the_random_numbers_alone():
    def program(dist):
        first = torch.rand(2)
        dist.barrier()
        return torch.cat([first, torch.rand(2)]).tolist()

    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    one, two = cluster.run(program, 3), cluster.run(program, 3)
    assert one == two
    assert torch.equal(torch.rand(1), expected)
    assert one.results[2] == torch.rand(4, generator=torch.Generator().manual_seed(2)).tolist()
    assert len({tuple(values) for values in one.results}) == 3


def test_each_rank_gets_its_own_copy_of_the_arguments():
    x, model = torch.zeros(2), nn.Linear(2, 1)

    def program(dist, x, model):
        x += dist.get_rank() + 1
        model.weight.data.zero_()
        return x

    before = model.weight.clone()
    done = cluster.run(program, 2, arguments=(x, model))
    assert [r.tolist() for r in done.results] == [[1, 1], [2, 2]]
    assert x.tolist() == [0, 0] and torch.equal(model.weight, before)


def test_what_was_received_is_there_only_after_wait():
    def program(dist):
        x = torch.full((2,), float(dist.get_rank()))
        if dist.get_rank() == 0:
            dist.send(x + 5, 1)
            dist.barrier()
            return None
        work = dist.irecv(x, 0)
        dist.barrier()
        early = x.clone()
        assert work.wait() is True
        return early.tolist(), x.tolist()

    assert cluster.run(program, 2).results[1] == ([1, 1], [5, 5])


def test_a_run_counts_what_was_received_and_never_waited_for():
    def program(dist):
        rank = dist.get_rank()
        sending = [dist.isend(torch.ones(size), 1 - rank) for size in (2, 0, 1)]
        receiving = [dist.irecv(torch.zeros(size), 1 - rank) for size in (2, 0, 1)]
        for work in (*sending, *receiving[: 1 + 2 * rank]):
            work.wait()

    assert cluster.run(program, ranks=2).unwaited == [2, 0]


def test_messages_between_two_ranks_come_in_the_order_in_which_they_were_sent():
    def program(dist):
        if dist.get_rank() == 0:
            for work in [dist.isend(torch.tensor([k]), 1) for k in range(3)]:
                work.wait()
            return None
        received = [torch.empty(1, dtype=torch.int64) for _ in range(3)]
        assert [dist.recv(x, 0) for x in received] == [0, 0, 0]
        return [x.item() for x in received]

    assert cluster.run(program, 2).results[1] == [0, 1, 2]


# --- How long it takes


@pytest.mark.parametrize("n", [2, 5])
def test_a_hand_written_ring_costs_what_all_reduce_costs(n):
    size = 24 * n
    by_hand = cluster.run(lambda dist: ring(rank_tensor(dist, size), dist), n)
    ready = cluster.run(lambda dist: dist.all_reduce(rank_tensor(dist, size)), n)
    expected = 2 * (n - 1) * (LATENCY + 24 * 4 / BANDWIDTH)
    for done in (by_hand, ready):
        assert done.seconds == pytest.approx(expected)
        assert done.steps == 2 * (n - 1)
        assert done.sent == [2 * (n - 1) * 24 * 4] * n
        assert done.messages == 2 * (n - 1) * n
    sums = [sum(i + 10 * rank for rank in range(n)) for i in range(1, size + 1)]
    assert all(result.tolist() == sums for result in by_hand.results)


@pytest.mark.parametrize(
    ("call", "steps", "sent"),
    [
        (lambda d, x, n: d.all_gather([x.clone() for _ in range(n)], x), 3, [72] * 4),
        (lambda d, x, n: d.all_gather_into_tensor(torch.empty(n, 6), x), 3, [72] * 4),
        (lambda d, x, n: d.reduce_scatter_tensor(torch.empty(2), x.repeat(2)[:8]), 3, [24] * 4),
        (lambda d, x, n: d.reduce(x, 1), 6, [24, 0, 24, 24]),
        (lambda d, x, n: d.broadcast(x, 1), 6, [0, 24, 24, 24]),
        (lambda d, x, n: d.gather(x, None if d.get_rank() else [x + 0] * n), 3, [0, 24, 24, 24]),
        (lambda d, x, n: d.barrier(), 6, [0] * 4),
    ],
)
def test_the_schedule_of_each_collective(call, steps, sent):
    def program(dist):
        cluster.compute(dist, dist.get_rank() * 1e-3)
        call(dist, rank_tensor(dist), 4)

    done = cluster.run(program, 4, latency=1.0, bandwidth=1e30)
    assert (done.steps, done.sent) == (steps, sent)
    assert done.seconds == pytest.approx(steps + 3e-3)  # begins when the last is there


def test_a_link_carries_one_message_at_a_time():
    def to_one(dist):
        if dist.get_rank():
            dist.send(torch.zeros(12), 0)
        else:
            works = [dist.irecv(torch.empty(12), src) for src in (3, 2, 1)]
            for work in works:
                work.wait()

    def pairs(dist):
        rank = dist.get_rank()
        if rank % 2:
            dist.recv(torch.empty(12), rank - 1)
        else:
            dist.send(torch.zeros(12), rank + 1)

    one = LATENCY + 48 / BANDWIDTH
    assert cluster.run(to_one, 4).seconds == pytest.approx(3 * one)
    assert cluster.run(to_one, 4).steps == 3
    assert cluster.run(pairs, 4).seconds == pytest.approx(one)
    assert cluster.run(pairs, 4).steps == 1


def test_the_message_that_can_begin_first_goes_first_whatever_the_rank():
    def program(dist):
        rank = dist.get_rank()
        cluster.compute(dist, (0, 3e-3, 1e-3)[rank])
        if rank:
            dist.send(torch.zeros(1), 0)
        else:
            for work in [dist.irecv(torch.empty(1), 1), dist.irecv(torch.empty(1), 2)]:
                work.wait()

    spans = [s for s in cluster.run(program, 3).spans if s.kind == "communicate" and s.rank == 0]
    assert [s.name for s in spans] == ["irecv from rank 2", "irecv from rank 1"]
    assert [s.start for s in spans] == pytest.approx([1e-3, 3e-3])


def test_what_is_asynchronous_overlaps_with_computing_and_the_spans_say_so():
    def program(dist, together):
        work = dist.all_reduce(torch.zeros(12_000), async_op=together)
        cluster.compute(dist, 3e-3, "forward")
        if together:
            work.wait()

    together, apart = (
        cluster.run(program, 2, bandwidth=BANDWIDTH / 1000, arguments=(how,)) for how in (True, False)
    )
    assert together.seconds == pytest.approx(4e-3 + 2 * LATENCY)
    assert apart.seconds == pytest.approx(7e-3 + 2 * LATENCY)
    compute, reduce = (s for s in together.spans if s.rank == 0)
    assert (compute.name, compute.kind) == ("forward", "compute")
    assert (reduce.name, reduce.kind) == ("all_reduce", "communicate")
    assert reduce.bytes == 48_000 and reduce.start == 0


def test_a_rank_that_comes_early_waits():
    def program(dist):
        cluster.compute(dist, 1e-3 * dist.get_rank())
        dist.barrier()

    waits = [s for s in cluster.run(program, 3).spans if s.kind == "wait"]
    assert [(s.rank, s.start, s.end) for s in waits] == [(0, 0, 2e-3), (1, 1e-3, 2e-3)]


# --- What goes wrong


def program_line(function, text):
    """Return the line number in this file of the first line of a function that contains ``text``."""
    lines, first = inspect.getsourcelines(function)
    return first + next(i for i, line in enumerate(lines) if text in line)


def test_a_collective_that_one_rank_calls_is_named_at_once():
    def program(dist):
        for _ in range(2):
            dist.barrier()
        if dist.get_rank() == 0:
            dist.all_reduce(torch.ones(1))  # only here

    started = time.monotonic()
    with pytest.raises(Deadlock) as caught:
        cluster.run(program, 2)
    line = program_line(program, "only here")
    assert str(caught.value) == (
        f"No rank can go on: rank 0 waits in all_reduce (its 3rd call, line {line}); rank 1 has finished."
    )
    assert time.monotonic() - started < 2


def test_two_ranks_that_both_send_first_are_named():
    def program(dist):
        peer = 1 - dist.get_rank()
        dist.send(torch.ones(1), peer)
        dist.recv(torch.ones(1), peer)

    with pytest.raises(Deadlock, match=r"rank 0 waits in send to rank 1 .*; rank 1 waits in send"):
        cluster.run(program, 2)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda d, rank: rank or d.isend(torch.ones(1), 1), "isend to rank 1"),
        (lambda d, rank: rank and d.irecv(torch.ones(1), 0), "irecv from rank 0"),
        (lambda d, rank: rank or d.all_reduce(torch.ones(1), async_op=True), "all_reduce"),
    ],
)
def test_what_nobody_answers_is_a_deadlock_though_nobody_waits(call, message):
    def program(dist):
        call(dist, dist.get_rank())

    with pytest.raises(Deadlock, match=f"nobody answered its {message}"):
        cluster.run(program, 2)


@pytest.mark.parametrize(
    ("first", "other", "message"),
    [
        (lambda d, x, n: d.barrier(), lambda d, x, n: d.all_reduce(x), "barrier .* all_reduce"),
        (lambda d, x, n: d.all_reduce(x), lambda d, x, n: d.all_reduce(x[:1]), r"\(2,\).*\(1,\)"),
        (lambda d, x, n: d.all_reduce(x), lambda d, x, n: d.all_reduce(n), "float32.*int64"),
        (lambda d, x, n: d.all_reduce(x), lambda d, x, n: d.all_reduce(x, d.ReduceOp.MAX), " MAX"),
        (lambda d, x, n: d.broadcast(x, 0), lambda d, x, n: d.broadcast(x, 1), "from rank 0 .*from rank 1"),
        (lambda d, x, n: d.send(x, 1), lambda d, x, n: d.recv(x[:1], 0), "does not fit"),
        (lambda d, x, n: d.send(x, 1), lambda d, x, n: d.recv(n, 0), "does not fit"),
    ],
)  # fmt: skip
def test_ranks_that_do_different_things_are_named(first, other, message):
    def program(dist):
        x, whole_numbers = torch.ones(2), torch.ones(2, dtype=torch.int64)
        with contextlib.suppress(Exception):  # a program cannot hide it
            (first, other)[dist.get_rank()](dist, x, whole_numbers)

    with pytest.raises(Mismatch, match=message):
        cluster.run(program, 2)


def test_an_error_on_a_rank_comes_out_as_it_is_with_the_rank():
    def program(dist):
        if dist.get_rank() == 1:
            raise KeyError("lost")
        dist.barrier()

    with pytest.raises(KeyError, match="lost") as caught:
        cluster.run(program, 3)
    if sys.version_info >= (3, 11):
        assert caught.value.__notes__ == ["This was on rank 1 of the simulated cluster."]
    assert "program" in [entry.name for entry in caught.traceback]


def test_an_endless_loop_on_a_rank_is_stopped_with_its_line():
    def program(dist):
        while dist.get_rank() == 1:
            pass  # for ever

    with pytest.raises(TimeoutError, match=r"after 0\.3 s; rank 1 was at line") as caught:
        cluster.run(program, 2, limit=0.3)
    loop = program_line(program, "while dist")
    assert any(f"line {line}." in str(caught.value) for line in (loop, loop + 1))


def test_endless_communication_is_stopped():
    with pytest.raises(TimeoutError):
        cluster.run(lambda dist: [dist.barrier() for _ in iter(int, 1)], 2, limit=0.3)


def test_ranks_must_not_share_a_tensor():
    shared = torch.ones(2)
    with pytest.raises(ValueError, match="Ranks 0 and 1 handed over the same tensor"):
        cluster.run(lambda dist: dist.all_reduce(shared), 2)


def test_a_tensor_must_not_change_while_it_is_sent():
    def program(dist):
        x = torch.ones(2)
        if dist.get_rank():
            dist.recv(x, 0)
        else:
            work = dist.isend(x, 1)
            x += 1
            work.wait()

    with pytest.raises(ValueError, match=r"Rank 0 changed what it had handed to isend to rank 1"):
        cluster.run(program, 2)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda d: d.send(torch.ones(1), 0), ValueError, "rank 0 cannot send to itself"),
        (lambda d: d.broadcast(torch.ones(1), 2), ValueError, "2 is no rank: there are 2"),
        (lambda d: d.recv(torch.ones(1), -1), ValueError, "-1 is no rank"),
        (lambda d: d.all_reduce(1.5), TypeError, "takes tensors, not a float"),
        (lambda d: d.all_reduce(torch.ones(2, 3).T), ValueError, "contiguous"),
        (lambda d: d.all_reduce(torch.ones(1), "sum"), ValueError, "not by 'sum'"),
        (lambda d: d.all_reduce(torch.ones(1).long(), d.ReduceOp.AVG), TypeError, "floating-point"),
        (lambda d: d.all_reduce(torch.ones(1, device="meta")), ValueError, "takes CPU tensors"),
        (
            lambda d: d.all_gather([torch.ones(1)], torch.ones(1)),
            ValueError,
            "needs a tensor a rank",
        ),
        (lambda d: d.all_gather([torch.ones(2)] * 2, torch.ones(1)), ValueError, "shape and dtype"),
        (lambda d: d.all_gather_into_tensor(torch.ones(3), torch.ones(1)), ValueError, "2 times"),
        (lambda d: d.gather(torch.ones(1)), ValueError, "gather_list on the rank dst"),
        (lambda d: cluster.compute(d, -1), ValueError, "cannot compute for -1 s"),
        (lambda d: d.all_to_all([], []), AttributeError, "no 'all_to_all'; it offers .*all_reduce"),
    ],
)
def test_a_wrong_call_says_what_is_wrong(call, error, message):
    with pytest.raises(error, match=message):
        cluster.run(call, 2)


@pytest.mark.parametrize(
    "wrong", [*({"ranks": n} for n in (0, True, 2.0, 500)), {"latency": -1}, {"bandwidth": 0}]
)
def test_a_wrong_cluster_is_refused(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        cluster.run(lambda dist: None, **wrong)


@pytest.mark.slow
def test_an_interrupt_ends_the_run():
    message = python(
        """
        import _thread, signal, threading
        from simgpu import cluster

        signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background ignores it

        def program(dist):
            while dist.get_rank() == 1:
                pass

        threading.Timer(0.3, _thread.interrupt_main).start()
        try:
            cluster.run(program, 2)
        except KeyboardInterrupt:
            print("interrupted", threading.active_count())
        """
    )
    assert message == "interrupted 1\n"


BOTH = """
import sys
import torch

def program(dist):
    n, rank = dist.get_world_size(), dist.get_rank()
    x = torch.arange(1.0, 7) + 10 * rank
    found = [x.clone() for _ in range(9)]
    dist.all_reduce(found[0])
    dist.all_reduce(found[1], dist.ReduceOp.MAX)
    dist.broadcast(found[2], 1)
    dist.reduce(found[3], 1, dist.ReduceOp.PRODUCT)
    dist.all_gather(found[4:6], x)
    gathered = [torch.empty(6) for _ in range(n)] if rank == 1 else None
    dist.gather(x, gathered, dst=1)
    whole, part = torch.empty(12), torch.empty(3)
    dist.all_gather_into_tensor(whole, x)
    dist.reduce_scatter_tensor(part, x)
    works = [dist.isend(x, 1 - rank), dist.irecv(found[6], 1 - rank)]
    for work in works:
        work.wait()
    dist.send(x, 1) if rank == 0 else dist.recv(found[7], 0)
    later = dist.all_reduce(found[8], async_op=True)
    later.wait()
    dist.barrier()
    if rank == 0:
        found[3] = None  # what reduce leaves on the others is not said
    return [*found, whole, part, *(gathered or [])]

if __name__ == "__main__":
    import torch.distributed as dist

    dist.init_process_group("gloo")
    torch.save(program(dist), f"{sys.argv[1]}/{dist.get_rank()}.pt")
    dist.destroy_process_group()
"""


@pytest.mark.slow
def test_a_program_finds_the_same_under_torch_distributed(tmp_path):
    script = tmp_path / "both.py"
    script.write_text(BOTH)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += ["--local-addr", "127.0.0.1", "--nproc-per-node", "2", script, tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (tmp_path / "1.pt").exists(), done.stderr
    simulated = cluster.run(runpy.run_path(str(script))["program"], 2).results
    for rank, values in enumerate(simulated):
        real = torch.load(tmp_path / f"{rank}.pt")
        for a, b in zip(values, real, strict=True):
            assert a is b if a is None else torch.equal(a, b)


# --- DistributedDataParallel


def rows(n=8, seed=0):
    """Return n random input rows and targets."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, 5, generator=generator), torch.randn(n, 3, generator=generator)


def net(seed=3):
    """Return a small network with weights from a seed; the random state is restored."""
    with torch.random.fork_rng([]):
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3))


@pytest.mark.parametrize("n", [1, 2, 4])
def test_gradients_equal_those_of_the_whole_batch_and_stay_alike(n):
    x, y = rows()
    whole = net()
    mse_loss(whole(x), y).backward()

    def program(dist):
        rank = dist.get_rank()
        model = DistributedDataParallel(net(3 if rank == 0 else 50 + rank), dist)
        mse_loss(model(x[rank::n]), y[rank::n]).backward()
        return [p.grad for p in model.parameters()], list(model.state_dict())

    for grads, keys in cluster.run(program, n).results:
        assert keys == [f"module.{key}" for key in whole.state_dict()]
        for grad, parameter in zip(grads, whole.parameters(), strict=True):
            torch.testing.assert_close(grad, parameter.grad, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize(
    ("inside", "count", "right"),
    [("both", 1, True), ("backward", 2, True), ("forward", 0, False), ("nothing", 2, True)],
)
def test_no_sync_is_decided_in_the_forward_pass(inside, count, right):
    x, y = rows()
    whole = net()
    mse_loss(whole(x), y).backward()

    def program(dist):
        rank = dist.get_rank()
        model = DistributedDataParallel(net(), dist)
        parts = list(zip(x[rank::2].split(2), y[rank::2].split(2), strict=True))
        for part, (some, target) in enumerate(parts):
            off = {inside} if part == 0 or inside == "forward" else set()
            with model.no_sync() if off & {"both", "forward"} else contextlib.nullcontext():
                loss = mse_loss(model(some), target) / 2
            with model.no_sync() if off & {"both", "backward"} else contextlib.nullcontext():
                loss.backward()
        return model.module[0].weight.grad

    done = cluster.run(program, 2)
    spans = [(s.name, s.kind) for s in done.spans if s.rank == 0]
    assert spans.count(("all_reduce", "communicate")) == count
    for grad in done.results:
        assert torch.allclose(grad, whole[0].weight.grad, atol=1e-6) is right


class Branches(nn.Module):
    """A network of which a forward pass uses the branch ``which``."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = (nn.Linear(2, 1) for _ in "abc")

    def forward(self, x, which):
        return getattr(self, which)(x)


def test_unused_parameters_where_they_are_meant():
    def program(dist):
        model = DistributedDataParallel(Branches(), dist, find_unused_parameters=True)
        for _ in range(2):
            model.zero_grad()
            model(torch.ones(1, 2), "ab"[dist.get_rank()]).sum().backward()
        return [None if p.grad is None else p.grad.flatten().tolist() for p in model.parameters()]

    half = [[0.5, 0.5], [0.5]]
    assert cluster.run(program, 2).results == [[*half, *half, None, None]] * 2


def test_models_without_parameters_are_refused():
    with pytest.raises(RuntimeError, match="needs a parameter"):
        cluster.run(lambda d: DistributedDataParallel(nn.ReLU(), d), 2)
