"""Whole networks train on the simulated device as on the CPU: layers, optimizers, mixed precision."""

import copy
import inspect
import io

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint, checkpoint_sequential
from torch.utils.flop_counter import FlopCounterMode

import simgpu

pytestmark = [pytest.mark.usefixtures("two_devices"), pytest.mark.slow]

SIM = "sim"


class Recurrent(nn.Module):
    """A classifier with a recurrent layer of the given class."""

    def __init__(self, kind):
        super().__init__()
        self.inner = kind(4, 6, 2, batch_first=True, bidirectional=True)
        self.head = nn.Linear(12, 3)

    def forward(self, x):
        return self.head(self.inner(x.unflatten(1, (2, 2)).repeat(1, 1, 2))[0][:, -1])


class Attention(nn.Module):
    """A classifier with a transformer layer and causal attention."""

    def __init__(self):
        super().__init__()
        self.inner = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True)
        self.head = nn.Linear(4, 3)

    def forward(self, x):
        h = self.inner(x[:, None, :] * torch.ones(1, 3, 1, device=x.device))
        return self.head(F.scaled_dot_product_attention(h, h, h, is_causal=True).mean(1))


class Pieces(nn.Module):
    """A network with a ParameterList, a ParameterDict and buffers, one of them not persistent."""

    def __init__(self):
        super().__init__()
        self.parts = nn.ParameterList([torch.randn(4, 3) for _ in range(2)])
        self.named = nn.ParameterDict({"bias": nn.Parameter(torch.zeros(3))})
        self.register_buffer("scale", torch.tensor([2.0]))
        self.register_buffer("hidden", torch.ones(3), persistent=False)

    def forward(self, x):
        out = x @ self.parts[0] + x @ self.parts[1] + self.named["bias"]
        return out * self.scale + self.hidden


NETS = {
    "mlp": lambda: nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 3)),
    "cnn": lambda: nn.Sequential(
        *(nn.Unflatten(1, (1, 2, 2)), nn.Conv2d(1, 6, 2), nn.BatchNorm2d(6), nn.ReLU()),
        *(nn.Conv2d(6, 3, 1), nn.Flatten()),
    ),
    "embedding": lambda: nn.Sequential(Whole(), nn.EmbeddingBag(8, 3)),
    "batch norm": lambda: nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.PReLU(), nn.Linear(8, 3)),
    "transposed": lambda: nn.Sequential(
        *(nn.Unflatten(1, (1, 2, 2)), nn.ConvTranspose2d(1, 3, 2), nn.GroupNorm(1, 3)),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten()),
    ),
    "lstm": lambda: Recurrent(nn.LSTM),
    "gru": lambda: Recurrent(nn.GRU),
    "rnn": lambda: Recurrent(nn.RNN),
    "attention": Attention,
    "pieces": Pieces,
}


class Whole(nn.Module):
    """Converts rows of floats to small non-negative integers."""

    def forward(self, x):
        return x.abs().mul(3).clamp(max=7).long()


def batch(device):
    """Return a fixed batch of inputs and labels on a device."""
    generator = torch.Generator().manual_seed(5)
    x = torch.randn(16, 4, generator=generator)
    return x.to(device), torch.randint(0, 3, (16,), generator=generator).to(device)


def train(make, device, optimizer=torch.optim.SGD, steps=3, **settings):
    """Train for some steps on a device; return the network, the optimizer and the list of losses."""
    torch.manual_seed(0)
    net = make().to(device)
    x, y = batch(device)
    settings = {"lr": 0.05, **settings}
    opt = optimizer(net.parameters(), **settings)

    def closure():
        opt.zero_grad()
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        return loss

    losses = [opt.step(closure).item() for _ in range(steps)]
    return net, opt, losses


def on_both(work):
    """Return the tensors of ``work(device)`` for the CPU and for the device, from the same seed."""
    results = []
    for device in ("cpu", SIM):
        torch.manual_seed(0)
        results.append([x.detach().cpu() for x in work(device)])
    return results


def all_equal(work):
    """Return whether ``work(device)`` gives the same bits on the CPU and on the device."""
    return all(map(torch.equal, *on_both(work)))


def same(a, b, **tolerance):
    """Assert that two networks have the same values."""
    for name, value in b.state_dict().items():
        torch.testing.assert_close(value.cpu(), a.state_dict()[name].cpu(), **tolerance)


@pytest.mark.parametrize("name", NETS)
def test_training_equals_the_cpus(name):
    on_cpu, _, expected = train(NETS[name], "cpu")
    on_sim, _, losses = train(NETS[name], SIM)
    assert {p.device.type for p in [*on_sim.parameters(), *on_sim.buffers()]} == {"sim"}
    assert losses == pytest.approx(expected, rel=1e-5)
    assert losses[0] != losses[-1]
    same(on_cpu, on_sim)


def test_packed_sequences():
    def work(device):
        lstm = nn.LSTM(2, 3, batch_first=True).to(device)
        x = torch.randn(3, 5, 2).to(device)
        packed = nn.utils.rnn.pack_padded_sequence(
            x, torch.tensor([5, 2, 4]), batch_first=True, enforce_sorted=False
        )
        out, lengths = nn.utils.rnn.pad_packed_sequence(lstm(packed)[0], batch_first=True)
        out.pow(2).sum().backward()
        assert out.device.type == device and lengths.tolist() == [5, 2, 4]
        return out, lstm.weight_hh_l0.grad

    torch.testing.assert_close(*on_both(work))


@pytest.mark.parametrize("name", ["silu", "mish"])
def test_the_gradient_of_an_activation_is_one_kernel_and_the_cpus(name):
    x = torch.linspace(-6, 6, 4001, requires_grad=True)
    y = x.detach().to(SIM).requires_grad_()
    getattr(F, name)(x).sum().backward()
    out = getattr(F, name)(y)
    grad = torch.ones_like(out)
    with simgpu.count() as counters:
        out.backward(grad)
    assert torch.equal(y.grad.cpu(), x.grad)
    assert counters.launches == 1


MASK = torch.rand(4, 5, 6, generator=torch.Generator().manual_seed(3)) > 0.4


@pytest.mark.parametrize(
    ("heads", "mask", "settings"),
    [
        (4, None, {"is_causal": True}),
        (4, MASK, {}),
        (4, MASK.float(), {}),  # which is added
        (4, MASK[0], {"dropout_p": 0.3}),
        (1, MASK, {}),
        (2, MASK[0], {"enable_gqa": True}),
    ],
)
@pytest.mark.parametrize("batch", [(), (2,)], ids=["no batch", "batch"])
def test_attention(heads, mask, settings, batch):
    def work(device):
        x = [torch.randn(*batch, n, rows, 8) for n, rows in ((4, 5), (heads, 6), (heads, 6))]
        x = [tensor.to(device).requires_grad_() for tensor in x]
        torch.manual_seed(0)
        moved = None if mask is None else mask.to(device)
        out = F.scaled_dot_product_attention(*x, moved, **settings)
        out.pow(2).sum().backward()
        assert out.device.type == device and out.isfinite().all()
        return out, *(tensor.grad for tensor in x)

    assert all_equal(work)


@pytest.mark.parametrize(
    ("key", "mask"),
    [
        (lambda q: q.half(), None),
        (lambda q: q[0, 0, 0], None),
        (lambda q: q, torch.ones(5, 5, dtype=torch.int64)),
        (lambda q: q, torch.ones(5, 5, dtype=torch.float16)),
        (lambda q: q, torch.ones(3, 5)),
    ],
)
@pytest.mark.parametrize("turned", [False, True])
def test_attention_refuses_what_pytorch_refuses(key, mask, turned):
    messages = []
    for device in ("cpu", SIM):
        query = torch.ones(2, 4, 5, 8, device=device)
        inputs = [key(query), query, query] if turned else [query, key(query), query]
        with pytest.raises(RuntimeError) as refused:
            F.scaled_dot_product_attention(*inputs, mask if mask is None else mask.to(device))
        messages.append(str(refused.value))
    assert messages[0] == messages[1]


@pytest.mark.parametrize("rows", [(), (4,)], ids=["one head", "heads"])
def test_attention_with_a_mask_and_is_causal_does_what_this_pytorch_does(rows):
    results = []
    for device in ("cpu", SIM):
        x = torch.ones(*rows, 5, 8, device=device)
        mask = torch.ones(5, 5, dtype=torch.bool, device=device)
        try:
            results.append(F.scaled_dot_product_attention(x, x, x, mask, is_causal=True).tolist())
        except RuntimeError as error:
            results.append(str(error))
    assert results[0] == results[1]


def test_attention_on_two_devices_is_refused():
    query = torch.ones(2, 4, 5, 8, device=SIM)
    sentence = "to have the same device type, but got query.device: sim:0 key.device: cpu"
    with pytest.raises(RuntimeError, match=sentence):
        F.scaled_dot_product_attention(query, query.cpu(), query)


# --- Moving modules


def test_a_module_that_moves_keeps_its_parameters():
    net = nn.Linear(3, 3)
    weight = net.weight
    for device in ("sim:0", "sim:1", "cpu", "sim:0"):
        assert net.to(device) is net and net.weight is weight
        assert weight.device == torch.device(device) and isinstance(weight, nn.Parameter)
        assert weight.is_leaf and weight.requires_grad
        net(torch.ones(1, 3, device=device)).sum().backward()
        assert weight.grad.device == torch.device(device)
    assert weight.grad.sum() == 4 * 9  # the gradient moved along
    assert net.cpu().weight.__class__ is nn.Parameter
    assert net.sim(1).weight.get_device() == 1


def test_dtype_and_device():
    assert nn.Linear(2, 2).to(SIM, torch.float16).weight.type() == "torch.sim.HalfTensor"
    net = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)).sim()
    weight = net[0].weight
    net.half()
    assert net[0].weight is weight and weight.dtype is torch.float16 and weight.is_sim
    assert net[1].num_batches_tracked.dtype is torch.long
    assert net.bfloat16().float().double()[1].running_mean.dtype is torch.float64
    with pytest.raises(RuntimeError, match="must have the same dtype, but got Float and Half"):
        nn.Linear(2, 2).sim().half()(torch.ones(1, 2, device=SIM))
    with pytest.raises(RuntimeError) as caught:
        nn.Conv2d(1, 1, 1, bias=False).sim().half()(torch.ones(1, 1, 2, 2, device=SIM))
    assert str(caught.value) == (
        "Input type (torch.sim.FloatTensor) and weight type (torch.sim.HalfTensor) should be the same"
    )


def test_load_state_dict():
    net = nn.Linear(2, 2, device=SIM)
    weight = net.weight
    net.load_state_dict({"weight": torch.full((2, 2), 3.0), "bias": torch.zeros(2, device="sim:1")})
    assert net.weight is weight and weight.is_sim and weight.eq(3).all() and net.bias.is_sim
    net.load_state_dict(nn.Linear(2, 2, device="sim:1").state_dict(), assign=True)
    assert net.weight.get_device() == 1 and isinstance(net.weight, nn.Parameter)
    with pytest.raises(RuntimeError, match="size mismatch"):
        net.load_state_dict(nn.Linear(3, 2).state_dict())


@pytest.mark.parametrize("how", ["argument", "context"])
def test_lazy_modules_made_on_the_device(how):
    with torch.device(SIM if how == "context" else "cpu"):
        net = nn.LazyLinear(3) if how == "context" else nn.LazyLinear(3, device=SIM)
    y = net(torch.ones(2, 5, device=SIM))
    y.sum().backward()
    assert net.weight.device == net.weight.grad.device == torch.device("sim:0")
    assert net.weight.requires_grad and type(net) is nn.Linear
    assert nn.LazyLinear(2)(torch.ones(1, 4)).device.type == "cpu"


@pytest.mark.parametrize("where", ["cpu", SIM])
def test_ctc_loss_takes_lengths_from_either_side(where):
    def work(device):
        x = torch.randn(50, 4, 20).log_softmax(2).to(device).requires_grad_()
        targets = torch.randint(1, 20, (4, 30)).to(device)
        lengths = torch.full((4,), 50), torch.tensor([10, 17, 29, 1])
        lengths = [n if device == "cpu" else n.to(where) for n in lengths]
        loss = F.ctc_loss(x, targets, *lengths)
        loss.backward()
        with torch.inference_mode():
            assert torch.equal(loss.detach(), F.ctc_loss(x, targets, *lengths))
        return loss, x.grad

    assert all_equal(work)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_attention_of_grouped_queries(causal, dtype):
    shapes = ((2, 8, 16, 32), (2, 2, 24, 32), (2, 2, 24, 32))

    def work(device):
        inputs = [torch.randn(shape, dtype=dtype).to(device).requires_grad_() for shape in shapes]
        out = F.scaled_dot_product_attention(*inputs, is_causal=causal, enable_gqa=True)
        out.float().square().sum().backward()
        return out, *(x.grad for x in inputs)

    with simgpu.timeline() as timeline:
        assert all_equal(work)
    kernels = (span for span in timeline.spans if span.kind == "kernel")
    flops = {span.name: span.flops for span in kernels if "attention" in span.name}
    # 2 for a multiplication with an addition; batch, heads, sizes.
    product = 2 * 2 * 8 * 16 * 24 * 32
    assert [value / product for _, value in sorted(flops.items())] == [2, 5]


@pytest.mark.parametrize("name", ["weight_norm", "spectral_norm", "orthogonal"])
def test_parametrizations(name):
    parametrize = getattr(nn.utils.parametrizations, name)

    def work(device):
        net = parametrize(nn.Linear(4, 4)).to(device)
        loss = net(batch(device)[0]).pow(2).sum()
        loss.backward()
        assert net.weight.device.type == device
        return loss, *(p.grad for p in net.parameters())

    torch.testing.assert_close(*on_both(work))


# --- Optimizers


def optimizers():
    """Yield every optimizer class of this PyTorch with each of its implementations, as pytest params."""
    for name, kind in inspect.getmembers(torch.optim, inspect.isclass):
        if kind is not torch.optim.Optimizer and issubclass(kind, torch.optim.Optimizer):
            accepted = inspect.signature(kind).parameters
            yield pytest.param(kind, {}, id=name)
            for setting in ("foreach", "fused", "capturable"):
                if setting in accepted:
                    yield pytest.param(kind, {setting: True}, id=f"{name}-{setting}")


def net_for(kind):
    """Return a network that an optimizer class can train."""
    if kind is torch.optim.SparseAdam:
        return nn.Sequential(Whole(), nn.Flatten(), nn.EmbeddingBag(8, 3, sparse=True, mode="sum"))
    if kind.__name__ == "Muon":  # only for matrices
        return nn.Sequential(nn.Linear(4, 8, bias=False), nn.Tanh(), nn.Linear(8, 3, bias=False))
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))


@pytest.mark.parametrize(("kind", "settings"), list(optimizers()))
def test_every_optimizer_steps_as_on_the_cpu(kind, settings):
    on_cpu, _, _ = train(lambda: net_for(kind), "cpu", kind)
    on_sim, opt, losses = train(lambda: net_for(kind), SIM, kind, **settings)
    same(on_cpu, on_sim, rtol=1e-5, atol=1e-5)
    assert losses[0] != losses[-1]
    for state in opt.state.values():
        for name, value in state.items():
            on_the_host = name in ("step", "mu_product")  # as on CUDA
            assert on_the_host or not torch.is_tensor(value) or value.is_sim, name


def test_many_tensors_at_a_time_is_the_default_as_on_cuda():
    net, opt, _ = train(NETS["mlp"], SIM, torch.optim.AdamW)
    assert opt.state[net[0].weight]["step"].is_cpu
    with simgpu.count() as several:
        opt.step()
    opt.param_groups[0]["foreach"] = False
    with simgpu.count() as single:
        opt.step()
    assert 0 < several.launches < single.launches / 2


def test_an_optimizer_made_before_the_move_is_still_valid():
    x, y = batch(SIM)
    net = NETS["mlp"]()
    opt = torch.optim.Adam(net.parameters(), lr=0.1)
    alive = net(batch("cpu")[0]).sum()  # a graph on the CPU still knows the parameters
    net.sim()
    before = copy.deepcopy(net)
    F.cross_entropy(net(x), y).backward()
    opt.step()
    assert not torch.equal(net[0].weight, before[0].weight) and alive.is_cpu
    assert opt.state[net[0].weight]["exp_avg"].is_sim


def test_an_optimizers_state_goes_to_the_parameters_device():
    _, opt, _ = train(NETS["mlp"], SIM, torch.optim.AdamW)
    file = io.BytesIO()
    torch.save(opt.state_dict(), file)
    file.seek(0)
    net = NETS["mlp"]().sim(1)
    resumed = torch.optim.AdamW(net.parameters())
    resumed.load_state_dict(torch.load(file, map_location="cpu"))
    state = resumed.state[net[0].weight]
    assert state["exp_avg"].get_device() == 1 and state["step"] == 3


# --- Mixed precision: CUDA's lists

FULL = torch.float32
RELEASE = tuple(map(int, torch.__version__.split(".")[:2]))


NORM = FULL if RELEASE >= (2, 12) else "low"
AUTOCAST = {
    "x @ x; torch.addmm(x, x, x); torch.bmm(x[None], x[None]); "
    "torch.baddbmm(x[None], x[None], x[None])": "low",
    "x @ x[0]; torch.einsum('ij,jk->ik', x, x); F.linear(x, x); F.conv1d(x[None], x[:, :, None])": "low",
    "F.conv2d(x[None, None], x[None, None]); F.conv_transpose2d(x[None, None], x[None, None])": "low",
    "F.prelu(x, x[0]); F.scaled_dot_product_attention(x[None], x[None], x[None])": "low",
    "torch.linalg.multi_dot([x, x, x])": "low",
    # in float32
    "(h + 1).cosh(); h.exp(); h.expm1(); (h + 1).log(); "
    "(h + 1).log10(); h.log1p(); (h + 1).reciprocal()": FULL,
    "(h + 1).rsqrt(); h.sinh(); h.tan(); (h * 0).acos(); h.pow(2); 2**h; F.softplus(h)": FULL,
    "F.layer_norm(h, (4,)); F.group_norm(h, 2); h.norm(); torch.dist(h, h); torch.cdist(h, h)": FULL,
    "F.rms_norm(h, (4,))": NORM,
    "h.renorm(2, 0, 1); h.logsumexp(1); F.cosine_similarity(h, h)": FULL,
    "F.nll_loss(h, rows); F.cross_entropy(h, rows); F.mse_loss(h, h); F.l1_loss(h, h)": FULL,
    "F.smooth_l1_loss(h, h); F.huber_loss(h, h); F.soft_margin_loss(h, h)": FULL,
    "F.kl_div(h, h, reduction='sum'); F.binary_cross_entropy_with_logits(h, h)": FULL,
    # a float32 result
    "h.softmax(1); F.log_softmax(h, 1); h.sum(); h.sum(1); h.prod(); h.cumsum(0); h.cumprod(0)": FULL,
    "torch.linalg.vector_norm(h)": FULL,
    "h.sum(dtype=torch.float64); h.softmax(1, dtype=torch.float64)": torch.float64,
    # in the widest dtype
    "torch.cat([x, h]); torch.stack([h, x]); torch.addcmul(h, x, h); torch.atan2(h, x)": FULL,
    "torch.dot(h[0], x[0]); F.bilinear(h, x, x[None])": FULL,
    "torch.cat([h, h])": "low",
    # on no list: the dtype that comes in
    "h.relu(); F.gelu(h); h.tanh(); h.mean(); h.max(); F.batch_norm(h, None, None, training=True)": "low",
    "F.dropout(h)": "low",
    "x.relu(); x + h": FULL,
    # not eligible
    "x.double() @ x.double()": torch.float64,
    "x.long().sum()": torch.int64,
    "x.cpu() @ x.cpu()": FULL,
}


@pytest.mark.parametrize("low", [torch.float16, torch.bfloat16], ids=["float16", "bfloat16"])
@pytest.mark.parametrize(
    ("work", "expected"), [(one, dtype) for w, dtype in AUTOCAST.items() for one in w.split("; ")]
)
def test_autocast_gives_the_dtype_of_cudas_lists(work, expected, low):
    torch.manual_seed(0)
    x = torch.rand(4, 4, device=SIM)
    known = {"torch": torch, "F": F, "x": x, "h": x.to(low), "rows": torch.arange(4, device=SIM)}
    with torch.autocast(SIM, dtype=low):
        assert eval(work, known).dtype is (low if expected == "low" else expected)


def test_autocast_of_recurrent_layers():
    x = torch.rand(2, 3, 4, device=SIM)
    with torch.autocast(SIM, dtype=torch.bfloat16):
        for kind in (nn.LSTM, nn.GRU, nn.RNN):
            assert kind(4, 3).sim()(x)[0].dtype is torch.bfloat16
        assert nn.LSTMCell(4, 3).sim()(x[0])[0].dtype is torch.bfloat16


def test_autocast_begins_and_ends():
    x = torch.rand(4, 4, device=SIM)
    with torch.autocast(SIM):
        assert (x @ x).dtype is torch.float16
        with torch.autocast(SIM, enabled=False):
            assert (x @ x).dtype is torch.float32
        with torch.autocast(SIM, dtype=torch.bfloat16):
            assert (x @ x).dtype is torch.bfloat16
        assert (x @ x).dtype is torch.float16
    assert (x @ x).dtype is torch.float32 and not torch.is_autocast_enabled(SIM)
    assert torch.autocast(SIM, dtype=torch.bfloat16)(lambda: x @ x)().dtype is torch.bfloat16
    with torch.autocast("cpu"):
        assert (x @ x).dtype is torch.float32 and (x.cpu() @ x.cpu()).dtype is torch.bfloat16


def test_autocast_keeps_the_gradients_in_float32():
    net = nn.Linear(4, 3).sim()
    x, y = batch(SIM)
    with torch.autocast(SIM):
        loss = F.cross_entropy(net(x), y)
    loss.backward()
    assert net.weight.grad.dtype is torch.float32
    reference = nn.Linear(4, 3)
    reference.load_state_dict(net.state_dict())
    F.cross_entropy(reference(x.cpu()), y.cpu()).backward()
    torch.testing.assert_close(net.weight.grad.cpu(), reference.weight.grad, rtol=0.02, atol=1e-3)


def test_autocast_casts_a_weight_once_and_lets_the_copy_go():
    net, x = nn.Linear(64, 64, bias=False).sim(), torch.rand(2, 64, device=SIM)
    with torch.autocast(SIM):
        with simgpu.count() as first:
            net(x)
        with simgpu.count() as second:
            net(x)
    assert second.launches == first.launches - 1
    before = torch.sim.memory_allocated()
    with torch.autocast(SIM):
        net(x)
        assert torch.sim.memory_allocated() == before + 64 * 64 * 2
        with torch.autocast(SIM, enabled=False):
            pass
        assert torch.sim.memory_allocated() == before + 64 * 64 * 2
    assert torch.sim.memory_allocated() == before
    with torch.autocast(SIM, cache_enabled=False):
        net(x)
        assert torch.sim.memory_allocated() == before
    with torch.no_grad(), torch.autocast(SIM):  # a weight that changed is cast anew
        old = net(x)
    with torch.no_grad():
        net.weight.mul_(2)
        with torch.autocast(SIM):
            assert torch.equal(net(x), old * 2)


def test_autocast_refuses_bce_and_custom_functions_choose():
    x = torch.rand(4, device=SIM)
    with torch.autocast(SIM), pytest.raises(RuntimeError, match="unsafe to autocast"):
        nn.BCELoss()(x, x)

    class Double(torch.autograd.Function):
        @staticmethod
        @torch.amp.custom_fwd(device_type=SIM, cast_inputs=torch.float32)
        def forward(ctx, a):
            assert not torch.is_autocast_enabled(SIM)
            return a * 2

        @staticmethod
        @torch.amp.custom_bwd(device_type=SIM)
        def backward(ctx, grad):
            return grad * 2

    half = x.half().requires_grad_()
    with torch.autocast(SIM):
        out = Double.apply(half)
    out.sum().backward()
    assert out.dtype is torch.float32 and half.grad.tolist() == [2] * 4


def test_grad_scaler():
    weight = nn.Parameter(torch.ones(1, device=SIM))
    opt = torch.optim.SGD([weight], lr=1.0)
    scaler = torch.amp.GradScaler(SIM, init_scale=4.0, growth_interval=2)
    seen = []
    for factor in (1.0, float("inf"), 1.0, 1.0):
        opt.zero_grad()
        scaler.scale((weight * factor).sum()).backward()
        assert weight.grad.item() == factor * scaler.get_scale()
        scaler.unscale_(opt)
        nn.utils.clip_grad_norm_([weight], 0.5)
        scaler.step(opt)
        scaler.update()
        seen.append((round(weight.item(), 4), scaler.get_scale()))
    # clipped to 0.5; skipped, and the scale halved; two good steps, and the scale doubled
    assert seen == [(0.5, 4), (0.5, 2), (0, 2), (-0.5, 4)]
    resumed = torch.amp.GradScaler(SIM)
    resumed.load_state_dict(scaler.state_dict())
    assert resumed.get_scale() == 4


@pytest.mark.parametrize("act", ["unscale_", "step"])
def test_grad_scaler_refuses_gradients_of_bfloat16_as_on_cuda(act):
    weight = nn.Parameter(torch.ones(2, device=SIM, dtype=torch.bfloat16))
    opt = torch.optim.SGD([weight], lr=1.0)
    scaler = torch.amp.GradScaler(SIM)
    scaler.scale(weight.sum()).backward()
    sentence = "\"_amp_foreach_non_finite_check_and_unscale_cuda\" not implemented for 'BFloat16'"
    with pytest.raises(NotImplementedError, match=sentence):
        getattr(scaler, act)(opt)
    assert weight.tolist() == [1, 1]


# --- Activation checkpointing, counting, profiling


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpointing_saves_memory_and_repeats_its_dropout(reentrant):
    torch.manual_seed(1)
    layers = [nn.Sequential(nn.Linear(64, 64), nn.Dropout(), nn.ReLU()) for _ in range(6)]
    net = nn.Sequential(*layers).sim()
    x = torch.randn(256, 64, device=SIM, requires_grad=True)

    def step(block):
        torch.manual_seed(2)
        net.zero_grad()
        x.grad = None
        before = torch.sim.memory_allocated()
        h = x
        with torch.autocast(SIM):
            for layer in net:
                h = block(layer, h)
        held = torch.sim.memory_allocated() - before
        h.float().sum().backward()
        return held, [x.grad, *(p.grad for p in net.parameters())]

    plain, expected = step(lambda layer, h: layer(h))
    saved, gradients = step(lambda layer, h: checkpoint(layer, h, use_reentrant=reentrant))
    assert saved < 0.7 * plain
    assert all(torch.equal(a, b) for a, b in zip(expected, gradients, strict=True))
    checkpoint_sequential(net, 2, x, use_reentrant=reentrant).sum().backward()


def test_saving_activations_on_the_host():
    with torch.autograd.graph.save_on_cpu(pin_memory=True), simgpu.count() as counts:
        x = torch.ones(3, device=SIM, requires_grad=True)
        y = (x * x).sum()
    y.backward()
    assert x.grad.tolist() == [2, 2, 2] and counts.copies_to_host == 2


def test_the_flop_counter_counts_the_same():
    flops = {}
    for device in ("cpu", SIM):
        net = NETS["cnn"]().to(device)
        x, _ = batch(device)
        with FlopCounterMode(display=False) as counter:
            net(x).sum().backward()
        flops[device] = counter.get_total_flops()
    assert flops[SIM] == flops["cpu"] > 0


def test_the_profiler_names_operations():
    x = torch.rand(8, 8, device=SIM)
    block = torch.profiler.record_function("my block")
    with torch.profiler.profile(record_shapes=True, profile_memory=True) as profile, block:
        (x @ x).sum().item()
    names = {event.key for event in profile.key_averages()}
    assert {"my block", "aten::mm", "aten::sum"} <= names
    assert "aten::mm" in profile.key_averages().table(row_limit=20)


@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_a_compiled_network_runs_on_the_device_as_it_stands(backend, recwarn):
    net = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Dropout()).sim().eval()
    x, y = batch(SIM)
    compiled = torch.compile(net, backend=backend)
    for _ in range(2):
        loss = F.cross_entropy(compiled(x), y)
        assert torch.equal(loss, F.cross_entropy(net(x), y))
    loss.backward()
    with torch.autocast(SIM):
        assert compiled(x).dtype is torch.float16
    assert net[0].weight.grad.is_sim
    assert not [w for w in recwarn if "trace" in str(w.message)]
