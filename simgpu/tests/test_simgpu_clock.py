"""The simulated accelerator's time: profiles, cost model, virtual clock, timeline."""

from __future__ import annotations

import json

import matplotlib.pyplot as plt
import pytest
import torch

from simgpu import cost, latency, profiles
from simgpu.clock import AHEAD, Clock, HostClock
from simgpu.timeline import Timeline

aten = torch.ops.aten
MIB = 2**20


def seconds(op, *args, profile="A100", **kwargs):
    """Run an operator on the CPU, and return its modelled seconds."""
    work = cost.work(op, args, kwargs, op(*args, **kwargs))
    return latency.seconds(work, profiles.load(profile))


def matmul_rate(n, dtype, profile):
    """Return the modelled FLOP/s of a square matrix product."""
    a = torch.empty(n, n, dtype=dtype, device="meta")
    return 2 * n**3 / seconds(aten.mm.default, a, a, profile=profile)


@pytest.fixture
def host():
    """Return a host clock."""
    return HostClock()


@pytest.fixture
def clock(host):
    """Return the clock of an A100."""
    return Clock(0, profiles.load("A100"), host)


@pytest.fixture
def timeline(host):
    """Return a timeline of the host clock's spans."""
    spans = []
    host.listeners.append(spans.append)
    return Timeline(spans)


# --- cost


@pytest.mark.parametrize("name", profiles.names())
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_a_big_matmul_is_near_the_rate_that_cards_reach_and_a_small_one_is_not(name, dtype):
    profile = profiles.load(name)
    reached = profile.rates["fp16" if dtype is torch.float16 else "fp32"]
    assert 0.8 * reached < matmul_rate(16384, dtype, name) < 1.05 * reached
    assert matmul_rate(256, dtype, name) < 0.5 * reached


def test_halves_use_the_tensor_cores_and_a_t4_has_none_for_bfloat16():
    fp16, bf16, fp32 = (
        matmul_rate(4096, dtype, "T4") for dtype in (torch.float16, torch.bfloat16, torch.float32)
    )
    assert fp16 > 5 * fp32
    assert bf16 < fp32
    assert matmul_rate(4096, torch.bfloat16, "A100") == matmul_rate(4096, torch.float16, "A100")


def test_tf32_follows_the_setting_where_the_card_has_it():
    before = torch.get_float32_matmul_precision()
    rates = {}
    try:
        for precision in ("highest", "high", "medium", "highest"):
            torch.set_float32_matmul_precision(precision)
            rates[precision] = [matmul_rate(4096, torch.float32, name) for name in ("A100", "T4")]
    finally:
        torch.set_float32_matmul_precision(before)
    assert rates["high"][0] > 4 * rates["highest"][0]
    assert rates["medium"] == rates["high"]
    assert rates["high"][1] == rates["highest"][1]


def test_convolutions_use_tf32_unless_it_is_turned_off():
    x, w = torch.empty(8, 64, 56, 56, device="meta"), torch.empty(64, 64, 3, 3, device="meta")
    args = (x, w, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1)
    fast = seconds(aten.convolution.default, *args)
    torch.backends.cudnn.allow_tf32 = False
    try:
        slow = seconds(aten.convolution.default, *args)
    finally:
        torch.backends.cudnn.allow_tf32 = True
    assert slow > 1.5 * fast


def test_a_big_addition_is_bound_by_memory_and_a_tiny_one_by_the_start_of_a_kernel():
    profile = profiles.load("A100")
    a, b = torch.empty(2, 4096, 4096, device="meta").unbind()
    expected = 3 * 4 * 4096**2 / (profile.bandwidth * profile.memory_efficiency)
    assert seconds(aten.add.Tensor, a, b) == pytest.approx(expected, rel=0.02)
    tiny = torch.ones(4)
    assert seconds(aten.add.Tensor, tiny, tiny) == pytest.approx(profile.kernel_floor, rel=0.01)


def bytes_moved(op, *args, **kwargs):
    """Run an operator on the CPU, and return the bytes that it moves according to the model."""
    return cost.work(op, args, kwargs, op(*args, **kwargs)).bytes


def test_bytes_are_counted_once_and_only_where_something_moves():
    x, y = torch.zeros(100, 100), torch.ones(100, 100)
    n = 4 * 100 * 100
    assert bytes_moved(aten.mul.Tensor, x, y) == 3 * n
    assert bytes_moved(aten.mul.Tensor, x, x) == 2 * n
    assert bytes_moved(aten.mul.Tensor, x, y[:1].expand(100, 100)) == 2 * n + n // 100
    assert bytes_moved(aten.add_.Tensor, x, y) == 3 * n
    assert bytes_moved(aten.zero_.default, x) == n
    assert bytes_moved(aten.copy_.default, x, y) == 2 * n
    assert bytes_moved(aten.add.out, x, y, out=torch.empty(100, 100)) == 3 * n
    assert bytes_moved(aten.zeros.default, [100, 100]) == n
    assert bytes_moved(aten.view.default, x, [-1]) == bytes_moved(aten.t.default, x) == 0
    assert bytes_moved(aten._unsafe_view.default, x, [-1]) == 0
    assert bytes_moved(aten.empty.memory_format, [100, 100]) == 0


def test_looking_up_a_few_rows_does_not_read_the_whole_table():
    table, rows = torch.zeros(10_000, 64), torch.tensor([1, 2, 3])
    assert bytes_moved(aten.embedding.default, table, rows) == rows.nbytes + 2 * 3 * 64 * 4
    assert bytes_moved(aten.index.Tensor, table, [rows]) == rows.nbytes + 2 * 3 * 64 * 4


def test_results_whose_size_depends_on_the_data_are_not_confused():
    few, many = torch.tensor([0.0, 0.0, 1.0]), torch.ones(3)
    assert bytes_moved(aten.nonzero.default, few) < bytes_moved(aten.nonzero.default, many)


def test_a_number_that_changes_at_every_step_does_not_fill_the_memory():
    x = torch.ones(7, 3)
    cost.work(aten.add_.Tensor, (x, x), {"alpha": 0.5}, x)
    before = len(cost._cache)
    for step in range(100):
        cost.work(aten.add_.Tensor, (x, x), {"alpha": 0.1 * step}, x)
        cost.work(aten.mul_.Scalar, (x, 1.0 + step), {}, x)
    assert len(cost._cache) <= before + 1


def test_flops_are_those_of_the_flop_counter():
    from torch.utils.flop_counter import FlopCounterMode

    class Add(torch.utils._python_dispatch.TorchDispatchMode):
        flops = 0.0

        def __torch_dispatch__(self, op, types, args=(), kwargs=None):
            out = op(*args, **(kwargs or {}))
            work = cost.work(op, args, kwargs or {}, out)
            self.flops += work.flops if work.matrix else 0
            return out

    net = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(8 * 36, 10)
    )
    x = torch.randn(4, 3, 8, 8, requires_grad=True)
    with FlopCounterMode(display=False) as counter:
        net(x).sum().backward()
    with Add() as counted:
        net(x).sum().backward()
    assert counted.flops == counter.get_total_flops() > 0


# --- clock


def test_tiny_kernels_are_bound_by_launching(clock):
    for _ in range(1000):
        clock.launch("tiny", 1e-9)
    assert clock.device == pytest.approx(1000 * clock.profile.launch, rel=1e-3)
    assert clock.busy == pytest.approx(1e-6)
    assert clock.idle > 0.99 * clock.device


def test_the_host_is_at_most_so_many_kernels_ahead(clock):
    spans = [clock.launch("long", 1e-3) for _ in range(AHEAD)]
    assert clock.host < 10e-3
    clock.launch("long", 1e-3)
    assert clock.host >= spans[0].end
    for _ in range(AHEAD):
        clock.launch("long", 1e-3)
    assert clock.device - clock.host == pytest.approx(AHEAD * 1e-3, rel=0.01)


def test_time_does_not_run_backwards(host):
    with pytest.raises(ValueError, match="0 or more"):
        host.advance(-1)


NBYTES = 100 * MIB


def test_the_six_ways_to_bring_a_tensor_to_the_device():
    host, total = {}, {}
    for source in ("pageable", "pinned", "pin_memory() first"):
        for blocking in (True, False):
            clock = Clock(0, profiles.load("A100"), HostClock())
            if source == "pin_memory() first":
                clock.pin(NBYTES)
            clock.copy("h2d", NBYTES, pinned=source != "pageable", blocking=blocking)
            host[source, blocking] = clock.host
            clock.synchronize()
            total[source, blocking] = clock.host
    # Only pinned memory together with non_blocking lets the host go on at once.
    assert host["pinned", False] < 1e-4
    assert all(time > 1e-3 for key, time in host.items() if key != ("pinned", False))
    # Pinned memory is faster, whether blocking or not; pinning first costs more than it saves.
    for blocking in (True, False):
        assert total["pinned", blocking] < 0.5 * total["pageable", blocking]
        assert total["pin_memory() first", blocking] > total["pageable", blocking]
    # For one tensor alone, not blocking makes next to no difference to when it is there.
    for source in ("pageable", "pinned"):
        assert total[source, False] == pytest.approx(total[source, True], rel=0.01)


def test_reading_one_number_from_an_idle_a100_costs_what_was_published(clock):
    """11.8 µs for one byte: intel/torch-xpu-ops#2157 on GitHub."""
    clock.copy("d2h", 1)
    assert clock.host == pytest.approx(11.8e-6, rel=0.05)


def test_both_directions_of_the_bus_work_at_the_same_time(clock):
    back = clock.new_stream()
    there = clock.copy("h2d", NBYTES, pinned=True, blocking=False)
    home = clock.copy("d2h", NBYTES, pinned=True, blocking=False, stream=back)
    assert home.start < there.end


@pytest.mark.parametrize("wait", ["stream", "host", "freed"])
def test_waiting_makes_it_no_race(clock, wait):
    side = clock.new_stream()
    clock.copy("h2d", NBYTES, True, False, stream=side, writes=["x"])
    if wait == "stream":
        clock.wait(0, clock.record(side))
    elif wait == "host":
        clock.synchronize()
    else:
        clock.forget_block("x")
    assert not clock.launch("use", 1e-3, blocks=["x"]).race


def test_luck_is_still_a_race(clock, host):
    """The copy is long done when its result is used, but nobody waited for it."""
    side = clock.new_stream()
    clock.copy("h2d", MIB, True, False, stream=side, writes=["x"])
    host.advance(1.0)
    assert clock.launch("use", 1e-3, blocks=["x"]).race


# --- timeline


@pytest.fixture
def busy(clock, host, timeline):
    """Return a timeline with spans of every kind."""
    side = clock.new_stream()
    for _ in range(3):
        host.advance(2e-3, "load a batch")
        clock.copy("h2d", 40 * MIB, True, False, stream=side, writes=["x"])
        clock.launch("matmul", 3e-3, blocks=["x"], bytes=1e6, flops=1e9)
        clock.launch("relu", 1e-3)
    clock.copy("d2h", 4)
    return timeline


def test_busy_time_and_length(busy, clock):
    assert busy.busy_seconds("sim:0 compute") == pytest.approx(12e-3)
    assert busy.busy_seconds("host") == pytest.approx(6e-3, rel=0.02)
    assert busy.seconds == pytest.approx(clock.host)
    assert busy.lanes == ["host", "sim:0 host to device", "sim:0 compute", "sim:0 device to host"]
    assert len(busy.races) == 3


def test_the_table_has_the_longest_first_and_says_modelled(busy):
    lines = busy.table(rows=2).text.splitlines()
    assert "modelled" in lines[0]
    assert lines[1].startswith("matmul") and "3" in lines[1]
    assert len(lines) == 3


def test_the_trace_has_what_perfetto_needs(busy, tmp_path):
    path = busy.export(tmp_path / "trace.json")
    events = json.loads(path.read_text(encoding="utf-8"))["traceEvents"]
    complete = [event for event in events if event["ph"] == "X"]
    names = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert len(complete) == len(busy.spans)
    for event in complete:
        assert {"name", "cat", "pid", "tid", "ts", "dur", "args"} <= event.keys()
        assert event["dur"] >= 0
        assert (event["pid"], event["tid"]) in names
    assert set(names.values()) == {"host", "compute", "host to device", "device to host"}
    matmul = next(e for e in complete if e["name"] == "matmul" and e["cat"] == "kernel")
    assert matmul["dur"] == pytest.approx(3000)
    assert any("modelled" in e["args"]["name"] for e in events if e["name"] == "process_name")


def test_the_picture_says_modelled_and_has_every_lane(busy):
    fig = busy.plot("Three steps")
    (ax,) = fig.axes
    assert ax.get_title(loc="left") + ax.get_title() == "Three steps (modelled)"
    assert [label.get_text() for label in ax.get_yticklabels()] == busy.lanes
    legend = [text.get_text() for text in ax.get_legend().get_texts()]
    assert len(legend) == len(set(legend)) and "race" in legend
    assert "12 ms" in busy.alt() and busy.alt().startswith("Modelled")
    plt.close(fig)


def test_an_empty_timeline_is_drawn_and_exported(tmp_path):
    empty = Timeline()
    plt.close(empty.plot())
    assert empty.seconds == 0
    assert json.loads(empty.export(tmp_path / "t.json").read_text())["traceEvents"] == []
