"""What the host's work costs: operators, views, autograd, lists, marks; and collectives of real cards."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import simgpu
from simgpu import cluster, host, profiles
from simgpu.cluster import collective_seconds


@pytest.fixture
def sim():
    """Enable an A100 and yield its clock; afterwards enable a T4."""
    if problem := simgpu.unavailable_reason():
        pytest.fail(problem)
    simgpu.enable("A100")
    yield simgpu.clock()
    simgpu.enable("T4")


def host_cost(clock, call):
    """Return the host's modelled seconds for a call, and its number of launches; call it once before."""
    call()
    before = clock.host
    with simgpu.count() as counted:
        call()
    return clock.host - before, counted.launches


def test_a_device_that_becomes_another_card_gets_that_cards_host(sim):
    simgpu.enable("RTX 4090")
    assert sim.costs == host.costs(profiles.load("RTX 4090").host) != host.costs(1.0)


def test_every_figure_of_the_host_has_a_source_and_a_unit():
    for name, figure in host.figures().items():
        assert figure["value"] > 0 and figure["unit"] == "s", name
        assert len(figure["source"]) > 40, name


def test_an_operator_costs_the_host_what_the_model_says(sim):
    x, w = torch.ones(8, 8, device="sim"), torch.ones(8, 8, device="sim")
    plain, library = sim.costs.dispatch, sim.costs.library
    launch = sim.profile.launch
    assert host_cost(sim, lambda: x + w) == pytest.approx((plain + launch, 1))
    assert host_cost(sim, lambda: x @ w) == pytest.approx((library + launch, 1))
    assert host_cost(sim, lambda: x.view(4, 16)) == pytest.approx((sim.costs.view, 0))
    assert library > plain > sim.costs.view


def test_recording_for_autograd_costs_the_host_more(sim):
    x = torch.ones(8, device="sim", requires_grad=True)

    def without():
        with torch.no_grad():
            x.tanh()

    recorded, bare = host_cost(sim, x.tanh)[0], host_cost(sim, without)[0]
    assert recorded - bare == pytest.approx(sim.costs.record)


def test_an_optimiser_that_takes_lists_costs_by_the_tensor(sim):
    def step(count):
        parameters = [nn.Parameter(torch.ones(4, device="sim")) for _ in range(count)]
        optimizer = torch.optim.SGD(parameters, lr=0.1, momentum=0.9)
        for parameter in parameters:
            parameter.grad = torch.ones(4, device="sim")
        return host_cost(sim, optimizer.step)

    few, many = step(10), step(110)
    assert few[1] == many[1]  # launches
    assert 100 * 3e-6 < many[0] - few[0] < 100 * 10e-6


def test_a_small_network_is_bound_by_the_host_and_a_large_one_is_not(sim):
    def share(width):
        net = nn.Sequential(*(nn.Linear(width, width) for _ in range(8))).to("sim")
        x = torch.empty(width, width, device="sim")
        with torch.no_grad():
            net(x)
            sim.synchronize()
            before, busy = sim.host, sim.busy
            net(x)
            sim.synchronize()
        return (sim.busy - busy) / (sim.host - before)

    assert share(16) < 0.15
    assert share(1024) > 0.85


def test_one_small_call_takes_by_events_what_was_measured():
    """An addition 25 to 26 µs, layer norm 46, linear 53 to 55: NeuSight, training part, T4 and A100."""
    card = profiles.load("A100")
    assert host.seconds_between_events(2e-6, card) == pytest.approx(25.5e-6, rel=0.05)
    assert host.seconds_between_events(4e-6, card, library=True) == pytest.approx(46.5e-6, rel=0.05)
    linear = host.seconds_between_events(5e-6, card, library=True, views=3)
    assert linear == pytest.approx(54e-6, rel=0.15)


# --- collectives

BUS = {  # published: bytes, and bus bandwidth in bytes/s of an all_reduce among 8 cards of one machine
    "A100": {2**18: 10.11e9, 2**22: 71.43e9, 2**26: 166.63e9, 2**30: 228.1e9},
    "H200": {2**18: 14.75e9, 2**22: 138.44e9, 2**26: 368.11e9, 2**30: 467.58e9},
}


@pytest.mark.parametrize("card", BUS)
def test_an_all_reduce_takes_about_what_was_published(card):
    """nccl-tests: Azure/AI-benchmarking-guide on GitHub."""
    for nbytes, rate in BUS[card].items():
        modelled = collective_seconds("all_reduce", nbytes, 8, profiles.load(card))
        assert modelled == pytest.approx(1.75 * nbytes / rate, rel=0.25), nbytes


def test_collectives_grow_with_bytes_and_an_all_reduce_is_a_scatter_and_a_gather():
    card = profiles.load("A100")
    times = [collective_seconds("all_reduce", 2.0**k, 8, card) for k in range(10, 34)]
    assert times == sorted(times)
    halves = [
        collective_seconds(kind, 1e9, 8, card) for kind in ("reduce_scatter_tensor", "all_gather_into_tensor")
    ]
    assert sum(halves) == pytest.approx(collective_seconds("all_reduce", 1e9, 8, card), rel=0.05)
    assert collective_seconds("all_reduce", 1e9, 1, card) == 0


@pytest.mark.parametrize("arguments", [("shuffle", 8, 2), ("all_reduce", -1, 2), ("all_reduce", 8, 0)])
def test_what_is_no_collective_is_refused(arguments):
    with pytest.raises(ValueError, match=r"no collective|give 0 or more"):
        collective_seconds(*arguments, profiles.load("T4"))


def test_a_cluster_of_a_profile_takes_the_times_of_its_cards():
    def program(dist):
        dist.all_reduce(torch.ones(1_000_000))

    card = profiles.load("A100")
    run = cluster.run(program, ranks=4, profile="A100")
    assert run.seconds == collective_seconds("all_reduce", 4_000_000, 4, card)
    assert run.seconds != cluster.run(program, ranks=4).seconds
