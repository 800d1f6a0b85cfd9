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

NAMES = [case.__name__ for case in (*ddp_cases.RUNS, *ddp_cases.STOPS, *ddp_cases.REFUSED)]


def simulated(case):
    def program(dist):
        return case(dist, functools.partial(cluster.DistributedDataParallel, dist=dist))

    return cluster.run(program, 2)


@pytest.mark.parametrize("case", ddp_cases.RUNS, ids=lambda case: case.__name__)
def test_what_runs_with_real_ranks_runs_on_the_simulated_cluster(case):
    simulated(case)


@pytest.mark.parametrize("case", ddp_cases.STOPS, ids=lambda case: case.__name__)
def test_what_hangs_with_real_ranks_is_named_at_once(case):
    with pytest.raises((Deadlock, Mismatch)):
        simulated(case)


@pytest.mark.parametrize(
    ("case", "said"), ddp_cases.REFUSED.items(), ids=lambda case: getattr(case, "__name__", "")
)
def test_what_ddp_refuses_is_refused_in_its_words(case, said):
    with pytest.raises(RuntimeError, match=said):
        simulated(case)


@pytest.fixture(scope="module")
def real(tmp_path_factory):
    """Return what two real ranks left of each case: for each rank a dict, or None where it died."""
    if not hasattr(os, "fork"):
        skip("the real ranks are forked, and Windows has no fork", until="2027-11-30")
    folder = tmp_path_factory.mktemp("real")
    own = {**os.environ, "GLOO_SOCKET_IFNAME": "lo0" if sys.platform == "darwin" else "lo"}
    script = Path(ddp_cases.__file__)
    subprocess.run([sys.executable, script, folder, *NAMES], env=own, timeout=400, check=True)

    def left(case):
        files = [folder / f"{case.__name__}.{rank}" for rank in range(2)]
        return [torch.load(file) if file.exists() else None for file in files]

    return left


@pytest.mark.slow
def test_real_ranks_do_the_same(real):
    """One process pair a case; a hang ends after two seconds with an error of gloo's."""
    for case in ddp_cases.RUNS:
        theirs = real(case)
        assert [rank and rank.get("said") for rank in theirs] == [None, None], case.__name__
        for rank, values in enumerate(simulated(case).results):
            other = theirs[rank]["values"]
            assert (values is None) == (other is None), case.__name__
            for here, there in zip(values or (), other or (), strict=True):
                torch.testing.assert_close(here, there, rtol=1e-5, atol=1e-6, msg=case.__name__)
    for case in ddp_cases.STOPS:
        ends = [rank is None or "said" in rank for rank in real(case)]
        assert any(ends), f"{case.__name__} ran"
    for case, said in ddp_cases.REFUSED.items():
        sentences = [rank["said"] for rank in real(case) if rank and "said" in rank]
        assert any(said in sentence for sentence in sentences), (case.__name__, sentences)
