"""DistributedDataParallel on the simulated cluster beside PyTorch's own: what runs, what stops, what is refused."""

import functools
import os
import subprocess
import sys
from pathlib import Path

import ddp_cases
import pytest
import torch
from support import skip

from simgpu import cluster
from simgpu.cluster import Deadlock, Mismatch


def simulated(name):
    def program(dist):
        return ddp_cases.CASES[name](
            dist, functools.partial(cluster.DistributedDataParallel, dist=dist)
        )

    return cluster.run(program, 2)


@pytest.mark.parametrize("name", ddp_cases.RUNS)
def test_what_runs_with_real_ranks_runs_on_the_simulated_cluster(name):
    simulated(name)


@pytest.mark.parametrize("name", ddp_cases.STOPS)
def test_what_hangs_with_real_ranks_is_named_at_once(name):
    with pytest.raises((Deadlock, Mismatch)):
        simulated(name)


@pytest.mark.parametrize("name", ddp_cases.REFUSED)
def test_what_ddp_refuses_is_refused_in_its_words(name):
    with pytest.raises(RuntimeError, match=ddp_cases.REFUSED[name]):
        simulated(name)


@pytest.mark.slow
def test_real_ranks_do_the_same(tmp_path):
    """One process pair a case; a hang ends after two seconds with an error of gloo's."""
    if not hasattr(os, "fork"):
        skip("the real ranks are forked, and Windows has no fork", until="2027-11-30")
    own = {**os.environ, "GLOO_SOCKET_IFNAME": "lo0" if sys.platform == "darwin" else "lo"}
    script = Path(ddp_cases.__file__)
    subprocess.run([sys.executable, script, tmp_path], env=own, timeout=400, check=True)

    def real(name):
        """What two real ranks left of a case: a dict each, or None where it died."""
        files = [tmp_path / f"{name}.{rank}" for rank in range(2)]
        return [torch.load(file) if file.exists() else None for file in files]

    for name in ddp_cases.RUNS:
        theirs = real(name)
        assert [rank and rank.get("said") for rank in theirs] == [None, None], name
        for rank, values in enumerate(simulated(name).results):
            other = theirs[rank]["values"]
            assert (values is None) == (other is None), name
            for here, there in zip(values or (), other or (), strict=True):
                torch.testing.assert_close(here, there, rtol=1e-5, atol=1e-6, msg=name)
    for name in ddp_cases.STOPS:
        assert any(rank is None or "said" in rank for rank in real(name)), f"{name} ran"
    for name, said in ddp_cases.REFUSED.items():
        sentences = [rank["said"] for rank in real(name) if rank and "said" in rank]
        assert any(said in sentence for sentence in sentences), (name, sentences)
