"""The edges: what CUDA refuses, what it has and the CPU lacks, and the smaller names of ``torch.cuda``."""

import copy
import math
import warnings

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

import simgpu


@pytest.fixture
def device():
    with simgpu.temporary_device("8 GB", "T4") as device:
        yield device


@pytest.mark.parametrize(
    ("call", "kernel"),
    [
        (lambda a: a @ a, "addmm_cuda"),
        (lambda a: F.linear(a, a), "addmm_cuda"),
        (lambda a: a @ a[0], "addmv_impl_cuda"),
        (lambda a: a[0] @ a[0], "dot"),
        (lambda a: a[None] @ a[None], "baddbmm_cuda"),
        (lambda a: F.conv2d(a[None, None], a[None, None]), "slow_conv2d_cuda"),
        (lambda a: F.max_pool2d(a[None, None], 2), "max_pool2d_with_indices_out_cuda_frame"),
        (lambda a: F.avg_pool2d(a[None, None], 2), "avg_pool2d_out_cuda_frame"),
    ],
)
def test_integers_are_refused_by_the_name_of_cudas_kernel(device, call, kernel):
    integers = torch.ones(4, 4, dtype=torch.long)
    call(integers)  # the CPU takes them
    with pytest.raises(NotImplementedError, match=f"\"{kernel}\" not implemented for 'Long'"):
        call(integers.to(device))
    call(torch.ones(4, 4, device=device))


@pytest.mark.parametrize(
    "call",
    [
        lambda x: F.avg_pool3d(x.reshape(1, 1, 4, 4, 4), 2),
        lambda x: torch.fft.rfft(x),
        lambda x: torch.fft.ifft(torch.fft.fft(x)).real,
        lambda x: F.interpolate(x.reshape(1, 1, 8, 8), scale_factor=0.5, mode="bilinear", antialias=True),
        lambda x: F.multi_margin_loss(x.reshape(8, 8), torch.arange(8, device=x.device)),
    ],
)
def test_operators_that_the_cpu_lacks_in_16_bits_are_computed_wider_and_rounded(device, call):
    x = torch.linspace(-1, 1, 64).half()
    with pytest.raises((RuntimeError, NotImplementedError)):
        call(x)
    result = call(x.to(device)).cpu()
    assert result.dtype in (torch.float16, torch.complex32)
    wide = torch.view_as_real(result).float() if result.is_complex() else result.float()
    expected = call(x.float())
    expected = torch.view_as_real(expected) if expected.is_complex() else expected
    torch.testing.assert_close(wide, expected, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize(
    "make",
    [
        lambda x: torch.empty_like(x, device="cpu", pin_memory=True),
        lambda x: x.new_zeros(3, device="cpu", pin_memory=True),
        lambda x: torch.arange(3, pin_memory=True),
        lambda x: torch.randperm(3, pin_memory=True),
        lambda x: torch.empty_strided((3,), (1,), pin_memory=True),
    ],
)
def test_factories_pin_their_memory(device, make):
    assert make(torch.ones(3, device=device)).is_pinned()
    with pytest.raises(RuntimeError, match="Only dense CPU tensors can be pinned"):
        torch.empty_like(torch.ones(3, device=device), pin_memory=True)


def _rnn_results(kind, device, packed=False, **options):
    torch.manual_seed(0)
    model = kind(5, 8, 2, **options).to(device)
    x = torch.randn(6, 3, 5).to(device).requires_grad_()
    inputs = nn.utils.rnn.pack_padded_sequence(x, torch.tensor([6, 4, 1])) if packed else x
    out, state = model(inputs)
    out = out.data if packed else out
    out.square().sum().backward()
    state = state if isinstance(state, tuple) else (state,)
    return [t.detach().cpu() for t in (out, *state, x.grad, *(p.grad for p in model.parameters()))]


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
@pytest.mark.parametrize("options", [{}, {"packed": True}, {"bidirectional": True, "batch_first": True}])
def test_a_recurrent_network_has_the_cpus_values_and_gradients(device, kind, options):
    for ours, cpus in zip(
        _rnn_results(kind, device, **options), _rnn_results(kind, "cpu", **options), strict=True
    ):
        assert torch.equal(ours, cpus)


def test_a_sequence_is_one_operator_each_way_and_its_reserve_lasts_until_backward(device):
    model, x = nn.LSTM(28, 128, 2).to(device), torch.randn(28, 100, 28, device=device)
    state = (torch.zeros(2, 100, 128, device=device), torch.zeros(2, 100, 128, device=device))
    before = torch.sim.memory_allocated()
    with simgpu.count() as counted:
        out = model(x, state)[0]
    assert counted.launches == 1
    assert counted.unmodelled == 0
    with_reserve = torch.sim.memory_allocated() - before
    with simgpu.timeline() as seen:
        out.backward(torch.ones_like(out))
    assert [s.kind for s in seen.spans if s.name == "_cudnn_rnn_backward"].count("kernel") == 1
    with torch.no_grad():
        del out
        for parameter in model.parameters():
            parameter.grad = None
        assert torch.sim.memory_allocated() - before == 0
        out = model(x, state)[0]
    assert out.numel()
    assert torch.sim.memory_allocated() - before < with_reserve / 2
    with torch.backends.cudnn.flags(enabled=False), simgpu.count() as counted:
        model(x, state)
    assert counted.launches > 500


def test_cudnns_limits_hold_for_recurrent_networks(device):
    model, x = nn.GRU(3, 4).to(device), torch.randn(5, 2, 3, device=device, requires_grad=True)
    with pytest.raises(RuntimeError, match="backward can only be called in training mode"):
        model.eval()(x)[0].sum().backward()
    (gradient,) = torch.autograd.grad(model.train()(x)[0].sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="Double backwards is not supported for CuDNN RNNs"):
        gradient.sum().backward()
    with torch.autocast("sim", torch.float16):
        assert model(x)[0].dtype is torch.float16


def test_deterministic_mode_refuses_what_cuda_refuses(device):
    x = torch.randn(1, 1, 8, 8, device=device, requires_grad=True)
    torch.use_deterministic_algorithms(True)
    try:
        F.avg_pool2d(x, 2).sum().backward()
        with pytest.raises(
            RuntimeError, match="adaptive_avg_pool2d_backward_cuda does not have a deterministic"
        ):
            F.adaptive_avg_pool2d(x, 3).sum().backward()
        with pytest.raises(RuntimeError, match="histc_cuda with floating point input does not have"):
            torch.histc(x)
        torch.bincount(torch.arange(3, device=device))
        torch.use_deterministic_algorithms(True, warn_only=True)
        with pytest.warns(UserWarning, match="warn_only=True"):
            torch.histc(x)
    finally:
        torch.use_deterministic_algorithms(False)
    torch.histc(x)


def test_a_card_has_its_attention_backends():
    for card, has_flash in (("T4", False), ("A100", True)):
        with simgpu.temporary_device("1 GB", card) as device:
            query = torch.randn(1, 2, 8, 4, dtype=torch.float16, device=device)
            expected = F.scaled_dot_product_attention(query, query, query)
            with sdpa_kernel(SDPBackend.EFFICIENT_ATTENTION):
                assert torch.equal(F.scaled_dot_product_attention(query, query, query), expected)
            with sdpa_kernel(SDPBackend.FLASH_ATTENTION), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                if has_flash:
                    F.scaled_dot_product_attention(query, query, query)
                else:
                    with pytest.raises(RuntimeError, match="No available kernel"):
                        F.scaled_dot_product_attention(query, query, query)
                with pytest.raises(RuntimeError, match="No available kernel"):  # in 32 bits nowhere
                    F.scaled_dot_product_attention(*[query.float()] * 3)
            del query, expected


def test_a_synchronization_is_reported_on_request(device):
    x = torch.ones(3, device=device)
    torch.sim.set_sync_debug_mode("error")
    try:
        x + 1
        torch.sim.synchronize()
        for wait in (lambda: x.sum().item(), lambda: x.cpu(), lambda: x.nonzero(), lambda: x[x > 0]):
            with pytest.raises(RuntimeError, match="called a synchronizing sim operation"):
                wait()
        torch.sim.set_sync_debug_mode("warn")
        with pytest.warns(UserWarning, match="called a synchronizing sim operation"):
            x.tolist()
    finally:
        torch.sim.set_sync_debug_mode(0)
    assert x.tolist() == [1, 1, 1]


def test_a_share_of_the_memory_is_a_limit(device):
    torch.sim.set_per_process_memory_fraction(0.01)
    with pytest.raises(torch.OutOfMemoryError, match=r"76\.29 MiB allowed; "):
        torch.empty(100_000_000, dtype=torch.uint8, device=device)
    torch.sim.set_per_process_memory_fraction(1.0)
    torch.empty(100_000_000, dtype=torch.uint8, device=device)


def test_seeds_memory_and_types_have_the_names_of_cuda(device):
    torch.sim.manual_seed(7)
    assert torch.sim.random.initial_seed() == 7
    torch.sim.seed()
    assert torch.sim.initial_seed() != 7
    x = torch.sim.FloatTensor(2, 3).fill_(1)
    assert isinstance(x, torch.sim.FloatTensor)
    assert not isinstance(x, torch.sim.LongTensor)
    assert torch.ones(2).type(torch.sim.LongTensor).type() == "torch.sim.LongTensor"
    stats = torch.sim.memory.memory_stats_as_nested_dict()
    assert stats["allocated_bytes"]["all"]["current"] == torch.sim.memory.memory_allocated()
    properties = torch.sim.get_device_properties()
    assert (properties.warp_size, properties.max_threads_per_multi_processor) == (32, 1024)
    with pytest.raises(AttributeError, match="capture no graphs"):
        torch.sim.CUDAGraph()


def test_a_storage_is_where_its_tensor_is(device):
    x = torch.ones(4, device=device)
    assert x.untyped_storage().device == device
    with pytest.raises(RuntimeError, match="the devices must match"):
        x.set_(torch.ones(2))
    before = torch.sim.memory_allocated()
    first, view = copy.deepcopy([x, x[1:]])
    assert torch.sim.memory_allocated() - before == 512
    first.fill_(5)
    assert view.tolist() == [5, 5, 5]


def test_dlpack_stays_on_the_device_or_is_refused(device):
    x = torch.ones(2, device=device)
    torch.from_dlpack(x).add_(1)
    assert x.tolist() == [2, 2]
    with pytest.raises(BufferError, match=r"Use Tensor\.cpu\(\)"):
        torch.utils.dlpack.to_dlpack(x)


def test_linearize_differentiates_on_the_device(device):
    x = torch.ones(3, device=device)
    _, derivative = torch.func.linearize(lambda a: (a * a).sin(), x)
    assert derivative(x).tolist() == pytest.approx([2 * math.cos(1)] * 3)


def test_jagged_tensors_are_on_the_device(device):
    rows = [torch.ones(2, 3), torch.ones(4, 3)]
    nested = torch.nested.nested_tensor(rows, layout=torch.jagged, device=device)
    assert nested.device == device
    assert (nested * 2).values().sum().item() == 36
    assert nn.Linear(3, 5).to(device)(nested).to_padded_tensor(0.0).shape == (2, 4, 5)


def test_an_accelerators_functions_refuse_the_cpu(device):
    for call in (torch.accelerator.synchronize, torch.accelerator.current_stream):
        with pytest.raises(ValueError, match="cpu doesn't match the current accelerator sim"):
            call("cpu")


def test_ctc_loss_without_a_batch(device):
    scores, targets = torch.randn(5, 4).log_softmax(1), torch.tensor([1, 2])
    lengths = torch.tensor(5), torch.tensor(2)
    expected = F.ctc_loss(scores, targets, *lengths)
    on_device = F.ctc_loss(scores.to(device), targets.to(device), *(n.to(device) for n in lengths))
    assert on_device.item() == pytest.approx(expected.item())


@pytest.mark.slow
def test_a_compiled_optimizer_steps(device):
    weights = [torch.ones(3, device=device, requires_grad=True)]
    optimizer = torch.optim.AdamW(weights, lr=0.1)
    weights[0].sum().backward()
    torch.compile(lambda: optimizer.step(), backend="eager")()
    assert weights[0].tolist() == pytest.approx([0.899] * 3)
