"""DistributedDataParallel on the simulated cluster runs, hangs and refuses what PyTorch's own does.

Each case is a small program that trains on two ranks. It runs on the simulated cluster, and as two processes
with PyTorch's own class over gloo: run as a script, this file starts them, and saves what each returned.
"""

import contextlib
import functools
import os
import subprocess
import sys
import warnings
from datetime import timedelta

import pytest
import torch
from support import skip
from torch import nn

from simgpu import cluster
from simgpu.cluster import Deadlock, Mismatch


def plain():
    """Return a network without buffers."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2))


def with_batch_norm():
    """Return a network whose BatchNorm has its running statistics in buffers."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Linear(3, 2))


class WithTable(nn.Module):
    """A network with a constant buffer."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 2)
        self.register_buffer("table", torch.ones(4), persistent=False)

    def forward(self, x):
        return self.layer(x + self.table)


class HalfUsed(nn.Module):
    """A network with two layers, one of them unused."""

    def __init__(self):
        super().__init__()
        self.used, self.idle = nn.Linear(4, 2), nn.Linear(4, 2)

    def forward(self, x):
        return self.used(x)


def rows(dist, step=0):
    """Return random rows that differ by rank and by step."""
    generator = torch.Generator().manual_seed(10 * step + dist.get_rank())
    return torch.randn(6, 4, generator=generator)


def train(model, dist, step=0):
    """Run the forward and backward pass of one training step."""
    model(rows(dist, step)).square().mean().backward()


def validate(model, dist, batches=1):
    """Evaluate the model in eval mode without gradients, then set it to train mode."""
    model.eval()
    with torch.no_grad():
        for _ in range(batches):
            model(rows(dist))
    model.train()


# --- What rank 0 alone does between training steps


def rank_0(what, network=with_batch_norm, before=1, after=1, meet=True, **how):
    """Return a case: train, let rank 0 alone call ``what``, meet at a barrier, train again."""

    def case(dist, ddp):
        model = ddp(network(), **how)
        for _ in range(before):
            train(model, dist)
        if dist.get_rank() == 0:
            what(model, dist)
        if meet:
            dist.barrier()
        for _ in range(after):
            train(model, dist)

    return case


def in_no_sync(model, dist):
    """Validate inside `no_sync`."""
    with model.no_sync():
        validate(model, dist)


def in_inference_mode(model, dist):
    """Validate in inference mode."""
    with torch.inference_mode():
        model.eval()(rows(dist))


def with_gradients(model, dist):
    """Run a forward pass with gradients."""
    model(rows(dist))


def both_ways(model, dist):
    """Validate, then run a forward pass with gradients."""
    validate(model, dist)
    model(rows(dist))


def through_module(model, dist):
    """Validate the wrapped module instead of the wrapper."""
    validate(model.module, dist)


def barrier_alone(model, dist):
    """Call a barrier."""
    dist.barrier()


def rank_0_validates_and_nobody_meets_afterwards(dist, ddp):
    """Train; rank 0 validates after each step, without a barrier."""
    model = ddp(with_batch_norm())
    for step in range(3):
        train(model, dist, step)
        if dist.get_rank() == 0:
            validate(model, dist)


def rank_0_validates_with_gradients_and_nobody_meets(dist, ddp):
    """Train; rank 0 validates with gradients after the first step, without a barrier.

    Rank 1 broadcasts its bucket order in the next training pass, so the two calls match by chance.
    """
    model = ddp(plain())
    train(model, dist)
    if dist.get_rank() == 0:
        model(rows(dist))
    train(model, dist, 1)
    train(model, dist, 2)
    return [p.grad for p in model.parameters()]


def rank_0_validates_after_all_have(dist, ddp):
    """Validate on all ranks, then on rank 0 alone.

    The first pass without gradients broadcasts the buffers; the next ones do not.
    """
    model = ddp(with_batch_norm())
    train(model, dist)
    validate(model, dist)
    if dist.get_rank() == 0:
        validate(model, dist)
    dist.barrier()
    train(model, dist)


def all_validate_with_unlike_numbers_of_batches(dist, ddp):
    """Validate on all ranks, with different numbers of batches."""
    model = ddp(with_batch_norm())
    for step in range(3):
        train(model, dist, step)
        validate(model, dist, batches=1 + dist.get_rank())


def one_has_nothing_to_validate(dist, ddp):
    """Validate on rank 1 only."""
    model = ddp(with_batch_norm())
    train(model, dist)
    validate(model, dist, batches=dist.get_rank())
    dist.barrier()


# --- Training


def after_three_steps(**how):
    """Return a case that trains for three steps and returns buffers and gradients."""

    def case(dist, ddp):
        model = ddp(with_batch_norm(), **how)
        for step in range(3):
            train(model, dist, step)
        return [*model.module.buffers(), *(p.grad for p in model.parameters())]

    return case


def buffers_in_no_sync(dist, ddp):
    """Train with two steps inside `no_sync`; return buffers and gradients.

    The first forward pass in `no_sync` still broadcasts the buffers; the second does not.
    """
    model = ddp(with_batch_norm())
    train(model, dist)
    with model.no_sync():
        train(model, dist, 1)
        train(model, dist, 2)
    train(model, dist, 3)
    return [*model.module.buffers(), *(p.grad for p in model.parameters())]


def rank_0_has_a_batch_more(dist, ddp):
    """Train one step more on rank 0."""
    model = ddp(plain())
    for step in range(3 - dist.get_rank()):
        train(model, dist, step)


def each_rank_stops_when_it_likes(dist, ddp):
    """Train a different number of steps on each rank, then call a barrier."""
    model = ddp(plain())
    for step in range(2 + dist.get_rank()):
        train(model, dist, step)
    dist.barrier()


def all_stop_together(dist, ddp):
    """Train until any rank wants to stop, by an all_reduce; return the last step."""
    model = ddp(plain())
    for step in range(4):
        train(model, dist, step)
        stop = torch.tensor([float(step == 1 + dist.get_rank())])
        dist.all_reduce(stop)
        if stop.item():
            break
    dist.barrier()
    return [torch.tensor(step)]


def one_rank_skips_backward(dist, ddp):
    """Skip the backward pass of one step on rank 1."""
    model = ddp(plain())
    for step in range(2):
        loss = model(rows(dist, step)).square().mean()
        if (dist.get_rank(), step) != (1, 0):
            loss.backward()


def one_rank_forgets_no_sync(dist, ddp):
    """Train a step inside `no_sync` on rank 0 only."""
    model = ddp(plain())
    train(model, dist)
    with model.no_sync() if dist.get_rank() == 0 else contextlib.nullcontext():
        train(model, dist)
    dist.barrier()


def saving_through_the_wrapper(dist, ddp):
    """Take the wrapper's state_dict on rank 0; return its length."""
    model = ddp(with_batch_norm())
    train(model, dist)
    saved = model.state_dict() if dist.get_rank() == 0 else {}
    dist.barrier()
    train(model, dist)
    return [torch.tensor(len(saved))]


# --- What DDP refuses


def models_with_unlike_numbers_of_parameters(dist, ddp):
    """Wrap models with different numbers of parameters."""
    ddp(nn.Sequential(*[nn.Linear(2, 2) for _ in range(1 + dist.get_rank())]))


def models_with_unlike_shapes(dist, ddp):
    """Wrap models with different parameter shapes."""
    ddp(nn.Linear(2, 2 + dist.get_rank()))


def a_layer_without_gradient(continuation):
    """Return a case in which a layer gets no gradient; then call ``continuation``."""

    def case(dist, ddp):
        model = ddp(HalfUsed())
        train(model, dist)
        continuation(model, dist)

    return case


def train_in_no_sync(model, dist):
    """Run a training step inside `no_sync`."""
    with model.no_sync():
        train(model, dist)


def named(*functions):
    """Return the functions by their names."""
    return {function.__name__: function for function in functions}


RUNS = {
    "rank 0 validates without buffers": rank_0(validate, plain, before=2),
    "rank 0 validates through module": rank_0(through_module),
    "rank 0 validates with unused parameters": rank_0(both_ways, HalfUsed, find_unused_parameters=True),
    "rank 0 validates with gradients later": rank_0(with_gradients, plain, before=2),
    "rank 0 validates without forward sync": rank_0(validate, broadcast_buffers=False),
    "buffers after three steps": after_three_steps(),
    "buffers after three steps without forward sync": after_three_steps(broadcast_buffers=False),
    "a layer without gradient, then validation": a_layer_without_gradient(validate),
    **named(
        rank_0_validates_with_gradients_and_nobody_meets,
        rank_0_validates_after_all_have,
        all_validate_with_unlike_numbers_of_batches,
        buffers_in_no_sync,
        all_stop_together,
        saving_through_the_wrapper,
    ),
}
STOPS = {
    "rank 0 validates with BatchNorm": rank_0(validate),
    "rank 0 validates with a table": rank_0(validate, WithTable, after=0),
    "rank 0 validates before training": rank_0(validate, before=0, after=0),
    "rank 0 validates in inference mode": rank_0(in_inference_mode, after=0),
    "rank 0 validates in no_sync": rank_0(in_no_sync, after=0),
    # After the first backward pass DDP orders its buckets anew, and tells all ranks in the next forward pass.
    "rank 0 validates with gradients": rank_0(with_gradients, plain),
    "a barrier on one rank": rank_0(barrier_alone, plain, meet=False),
    **named(
        rank_0_validates_and_nobody_meets_afterwards,
        one_has_nothing_to_validate,
        rank_0_has_a_batch_more,
        each_rank_stops_when_it_likes,
        one_rank_skips_backward,
        one_rank_forgets_no_sync,
    ),
}
REFUSED = {  # by the sentence
    "DDP expects same model across all ranks, but Rank": models_with_unlike_numbers_of_parameters,
    "appears not to match sizes of the same param in process 0": models_with_unlike_shapes,
    "Expected to have finished reduction in the prior iteration": a_layer_without_gradient(train),
    "Expected to have finished reduction": a_layer_without_gradient(train_in_no_sync),
}
CASES = {**RUNS, **STOPS, **REFUSED}


def simulated(name):
    """Run a case on the simulated cluster."""

    def program(dist):
        return CASES[name](dist, functools.partial(cluster.DistributedDataParallel, dist=dist))

    return cluster.run(program, 2)


@pytest.mark.parametrize("name", RUNS)
def test_what_runs_with_real_ranks_runs_on_the_simulated_cluster(name):
    simulated(name)


@pytest.mark.parametrize("name", STOPS)
def test_what_hangs_with_real_ranks_is_named_at_once(name):
    with pytest.raises((Deadlock, Mismatch)):
        simulated(name)


@pytest.mark.parametrize("sentence", REFUSED)
def test_what_ddp_refuses_is_refused_in_its_words(sentence):
    with pytest.raises(RuntimeError, match=sentence):
        simulated(sentence)


@pytest.mark.slow
def test_real_ranks_do_the_same(tmp_path):
    """One process pair a case; a hang ends after two seconds with an error of gloo's."""
    if not hasattr(os, "fork"):
        skip("the real ranks are forked, and Windows has no fork", until="2027-11-30")
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(sys.path),
        "GLOO_SOCKET_IFNAME": "lo0" if sys.platform == "darwin" else "lo",
    }
    subprocess.run([sys.executable, __file__, tmp_path], env=environment, timeout=400, check=True)

    def real(name):
        """What two real ranks left of a case: a dict each, or None where it died."""
        files = [tmp_path / f"{name}.{rank}" for rank in range(2)]
        return [torch.load(file) if file.exists() else None for file in files]

    for name in RUNS:
        results = real(name)
        assert [rank and rank.get("error") for rank in results] == [None, None], name
        for rank, values in enumerate(simulated(name).results):
            other = results[rank]["values"]
            assert (values is None) == (other is None), name
            for simulated_value, real_value in zip(values or (), other or (), strict=True):
                torch.testing.assert_close(simulated_value, real_value, rtol=1e-5, atol=1e-6, msg=name)
    for name in STOPS:
        assert any(rank is None or "error" in rank for rank in real(name)), f"{name} ran"
    for sentence in REFUSED:
        errors = [rank["error"] for rank in real(sentence) if rank and "error" in rank]
        assert any(sentence in error for error in errors), (sentence, errors)


def main(folder: str) -> None:
    """Run each case as two processes; the results are saved as ``folder/NAME.RANK``.

    There is no file for a rank whose process died.
    """
    import torch._dynamo  # noqa: F401  (which DDP needs, once before all forks)

    for name in CASES:
        children = []
        for rank in range(2):
            child = os.fork()  # a case may end its process by a signal
            if not child:
                os._exit(_run_real_rank(name, rank, folder))
            children.append(child)
        for child in children:
            os.waitpid(child, 0)


def _run_real_rank(name: str, rank: int, folder: str) -> int:
    """Run a case on a real rank; save {"values": result} or {"error": message}; return the exit status."""
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    warnings.filterwarnings("ignore", message=".*broadcast_buffers.*")
    store = dist.FileStore(os.path.join(folder, f"{name}.store"), 2)
    patience = timedelta(seconds=2)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=2, timeout=patience)
    try:
        result = {"values": CASES[name](dist, DistributedDataParallel)}
    except RuntimeError as error:
        result = {"error": str(error)}
    torch.save(result, os.path.join(folder, f"{name}.{rank}"))
    return 0


if __name__ == "__main__":
    main(sys.argv[1])
