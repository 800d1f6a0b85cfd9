"""A tensor on the simulated device behaves as a tensor on CUDA does, and refuses what CUDA refuses."""

import copy
import io
import pickle

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import simgpu

pytestmark = pytest.mark.usefixtures("two_devices")

SIM = "sim"
TWO = "Expected all tensors to be on the same device, but found at least two devices, {} and {}!"
CONV, LOSS = "_cudnn_convolution", "nll_loss_forward"


def but_got(name, place, method, others="sim:0"):
    """Return CUDA's error message for a tensor on the wrong device."""
    return (
        f"Expected all tensors to be on the same device, but got {name} is on {place}, different from "
        f"other tensors on {others} (when checking argument in method wrapper_SIM_{method})"
    )


def numbers(device=SIM):
    """Return the numbers 0 to 11 as a (3, 4) tensor on a device."""
    return torch.arange(12.0).view(3, 4).to(device)


def ones():
    """Return a (3, 4) tensor of ones on the CPU."""
    return torch.ones(3, 4)


def labels(device="cpu"):
    """Return three class labels."""
    return torch.tensor([0, 1, 2], device=device)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, torch.uint8, torch.float32])
def test_a_histogram_takes_whole_numbers_as_on_cuda(dtype):
    found = torch.tensor([0, 2, 2, 3, 9], dtype=dtype, device=SIM).histc(4, 0, 3)
    assert found.is_sim and found.dtype is dtype and found.tolist() == [1, 0, 2, 1]


# --- Tensors on two devices

POINTWISE = TWO.format("sim:0", "cpu")
CONV_IN = (
    "Input type (torch.FloatTensor) and weight type (torch.sim.FloatTensor) should be the same "
    "or input should be a MKLDNN tensor and weight is a dense tensor"
)
CONV_WEIGHT = "Input type (torch.sim.FloatTensor) and weight type (torch.FloatTensor) should be the same"
INDICES = "indices should be either on cpu or on the same device as the indexed tensor ({})"


@pytest.mark.parametrize(
    ("work", "sentence"),
    [
        (lambda x, c: x + c, POINTWISE),
        (lambda x, c: c + x, POINTWISE),
        (lambda x, c: c.add_(x), POINTWISE),
        (lambda x, c: x[0, 0] + c, POINTWISE),
        (lambda x, c: torch.tensor(1.0).add_(x[0, 0]), POINTWISE),
        (lambda x, c: torch.add(x, x, out=c), POINTWISE),
        (lambda x, c: torch.add(c, c, out=x), POINTWISE),
        (lambda x, c: torch.where(c > 0, x, x), POINTWISE),
        (lambda x, c: x.masked_fill(c > 0, 0), POINTWISE),
        (lambda x, c: F.mse_loss(x, c), POINTWISE),
        (lambda x, c: F.binary_cross_entropy_with_logits(x, c), POINTWISE),
        (lambda x, c: x + x.to("sim:1"), TWO.format("sim:0", "sim:1")),
        (lambda x, c: x.T @ c, but_got("mat2", "cpu", "mm")),
        (lambda x, c: c.T @ x, but_got("mat2", "sim:0", "mm", "cpu")),
        (lambda x, c: x.T @ x.to("sim:1"), but_got("mat2", "sim:1", "mm")),
        (lambda x, c: torch.addmm(x, c, x.T), but_got("mat1", "cpu", "addmm")),
        (lambda x, c: nn.Linear(4, 2).sim()(c), but_got("mat1", "cpu", "addmm")),
        (lambda x, c: nn.Linear(4, 2)(x), but_got("mat1", "sim:0", "addmm", "cpu")),
        (lambda x, c: torch.bmm(x[None], c.T[None]), but_got("mat2", "cpu", "bmm")),
        (lambda x, c: nn.Conv2d(1, 1, 1).sim()(c[None, None]), CONV_IN),
        (lambda x, c: nn.Conv2d(1, 1, 1)(x[None, None]), CONV_WEIGHT),
        (
            lambda x, c: nn.Conv2d(1, 1, 1).to("sim:1")(x[None, None]),
            but_got("weight", "sim:1", CONV),
        ),
        (lambda x, c: nn.Embedding(3, 4).sim()(labels()), but_got("index", "cpu", "_index_select")),
        (lambda x, c: F.cross_entropy(x, labels()), but_got("target", "cpu", "nll_loss_forward")),
        (
            lambda x, c: F.cross_entropy(x, labels(SIM), torch.ones(4)),
            but_got("weight", "cpu", LOSS),
        ),
        (lambda x, c: torch.cat([x, c]), but_got("tensors", "cpu", "cat")),
        (lambda x, c: torch.stack([c, x]), but_got("tensors", "sim:0", "cat", "cpu")),
        (lambda x, c: x.gather(1, labels()[:, None]), but_got("index", "cpu", "gather")),
        (lambda x, c: nn.BatchNorm1d(4)(x), but_got("weight", "cpu", "_native_batch_norm")),
        (lambda x, c: c[labels(SIM)], INDICES.format("cpu")),
        (lambda x, c: c[x > 0], INDICES.format("cpu")),
        (lambda x, c: x[labels("sim:1")], INDICES.format("sim:0")),
        (lambda x, c: x.index_put_((labels(),), c), POINTWISE),
        (lambda x, c: x.__setitem__(x > 3, torch.ones(8)), POINTWISE),
        (
            lambda x, c: nn.LSTM(4, 3).sim()(c),
            "Input and parameter tensors are not at the same device, found input tensor at cpu and "
            "parameter tensor at sim:0",
        ),
        (
            lambda x, c: (x.requires_grad_() * 2).backward(c),
            "invalid gradient at index 0 - expected device sim:0 but got cpu",
        ),
        (
            lambda x, c: nn.utils.rnn.pack_padded_sequence(x[..., None], labels(SIM) + 1),
            "'lengths' argument should be a 1D CPU int64 tensor, but got 1D sim:0 Long tensor",
        ),
    ],
)
def test_tensors_on_two_devices_raise_cudas_sentence(work, sentence):
    with pytest.raises(RuntimeError) as caught:
        work(numbers(), ones())
    assert str(caught.value).split("\n")[0] == sentence


def test_a_gradient_of_another_device_cannot_be_assigned():
    net = nn.Linear(2, 2).sim()
    with pytest.raises(RuntimeError, match="device type 'cpu' to a tensor with device type 'sim'"):
        net.weight.grad = torch.ones(2, 2)


def test_what_cuda_allows_across_devices_works():
    x = numbers()
    scalar = torch.tensor(2.0)
    host = numbers("cpu")
    for actual, expected in [
        (x + scalar, host + 2),
        (scalar * x, 2 * host),
        (torch.where(x > 3, x, torch.tensor(0.0)), host.where(host > 3, scalar * 0)),
        (x.masked_fill(x > 3, scalar), host.masked_fill(host > 3, 2)),
        (x[labels()[:2]], host[:2]),
        (x[ones() > 0], host.flatten()),
    ]:
        assert actual.device == torch.device("sim:0")
        assert torch.equal(actual.cpu(), expected)
    host = ones()
    host[0] = x[1]  # an assignment to a slice is a copy
    x[0], x[1], x[2, 0] = torch.ones(4), 5, scalar
    assert host[0].tolist() == [4, 5, 6, 7]
    assert x.tolist() == [[1] * 4, [5] * 4, [2, 9, 10, 11]]


def test_a_device_that_is_not_there_is_refused():
    with pytest.raises(RuntimeError, match=r"invalid device ordinal.*sim:3 .* there are 2 devices"):
        numbers().to("sim:3")
    with pytest.raises(RuntimeError, match="invalid device ordinal"):
        torch.zeros(3, device="sim:7")
    with pytest.raises((RuntimeError, AssertionError)):
        numbers().to("mps" if not torch.backends.mps.is_available() else "xpu")


# --- Values to the host


@pytest.mark.parametrize("convert", [lambda x: x.numpy(), np.asarray, lambda x: np.array(x, "f4")])
def test_numpy_is_refused_with_cudas_sentence(convert):
    with pytest.raises(TypeError) as caught:
        convert(numbers("sim:1"))
    assert str(caught.value) == (
        "can't convert sim:1 device type tensor to numpy. Use Tensor.cpu() to copy the tensor to host "
        "memory first."
    )


def test_numpy_after_cpu_and_by_force():
    assert numbers().cpu().numpy().sum() == 66
    assert numbers().requires_grad_().numpy(force=True).sum() == 66
    with pytest.raises(RuntimeError, match="requires grad"):
        numbers().requires_grad_().numpy()


def test_python_numbers():
    x = numbers()
    assert (x[0, 1].item(), float(x[1, 0]), int(x[1, 1]), bool(x[0, 0])) == (1.0, 4.0, 5, False)
    assert x.tolist() == numbers("cpu").tolist() and len(x) == 3 and 5.0 in x
    assert [1, 2, 3][torch.tensor(1, device=SIM)] == 2
    assert torch.tensor([x[0, 1], x[0, 2]]).tolist() == [1, 2]
    assert [row.sum().item() for row in x] == [6, 22, 38]
    with pytest.raises(RuntimeError, match="cannot be converted to Scalar"):
        x.item()
    with pytest.raises(RuntimeError, match="ambiguous"):
        bool(x)


def test_printing():
    x = torch.tensor([1.0, 2.5])
    assert repr(x.sim()) == "tensor([1.0000, 2.5000], device='sim:0')"
    assert repr(x.to("sim:1", torch.float16)).endswith("device='sim:1', dtype=torch.float16)")
    assert repr(x.sim().requires_grad_() * 2).endswith("device='sim:0', grad_fn=<MulBackward0>)")
    assert repr(torch.zeros(0, 3, device=SIM)) == "tensor([], device='sim:0', size=(0, 3))"
    assert repr(nn.Parameter(x.sim())).startswith("Parameter containing:\ntensor([1.0000, 2.5000]")
    assert "requires_grad=True" in repr(nn.Parameter(x.sim()))
    assert "..." in repr(torch.zeros(2000, device=SIM))
    assert f"{x.sim()[1]:.1f} {x.sim()[0]}" == "2.5 1.0"
    assert "device='sim:0'" in f"{x.sim()}" and "device='sim:0'" in repr({"a": [x.sim()]})


def test_what_a_tensor_says_of_itself():
    x = numbers("sim:1")
    assert x.is_sim and not x.is_cpu and not x.is_cuda and x.get_device() == 1
    assert (x.type(), x.half().type()) == ("torch.sim.FloatTensor", "torch.sim.HalfTensor")
    assert torch.is_tensor(x) and isinstance(x, torch.Tensor) and not isinstance(x, nn.Parameter)
    assert isinstance(nn.Parameter(x), nn.Parameter)
    assert torch.ones(2).to(x).device == x.device
    assert torch.ones(2).to(SIM, torch.float16).dtype is torch.float16
    assert ones().sim(1).device == x.device and ones().sim(device="sim:1").device == x.device


def test_making_tensors_on_the_device():
    with torch.device("sim:1"):
        made = torch.ones(2), torch.tensor(3), nn.Linear(2, 2).weight
    assert {tensor.device for tensor in made} == {torch.device("sim:1")}
    torch.set_default_device(SIM)
    try:
        assert torch.empty(2).is_sim
    finally:
        torch.set_default_device(None)
    with torch.device("meta"):
        assert torch.ones(2).is_meta
    assert torch.ones(2).is_cpu
    assert torch.tensor([1, 2], device=SIM).tolist() == [1, 2]
    assert torch.as_tensor(np.ones(2), device=SIM).dtype is torch.float64
    assert torch.zeros_like(numbers()).is_sim and numbers().new_ones(3).is_sim


# --- Views and writes


def scribble(b):
    """Write into a tensor through every kind of view, and return it."""
    row = b[1]
    row += 1
    b.T[0].fill_(5)
    b.view(-1)[15] = 9
    b.detach()[2, 2] = 7
    b.data[3, 0] = 4
    b.reshape(-1)[14] = 3
    b.narrow(0, 0, 1).mul_(2)
    b.chunk(2)[1].add_(1)
    b.unbind()[0].neg_()
    b[:, 1:3].unsqueeze(0).squeeze(0).transpose(0, 1)[1].sub_(2)
    b.diagonal().mul_(3)
    b.unfold(0, 2, 2)[1, 0, 1] = 8
    torch.as_strided(b, (2,), (5,)).add_(10)
    b[[0, 1], [0, 1]] = 99
    b[b > 90] *= 2
    return b


def test_a_write_through_a_view_is_seen_in_its_base():
    assert torch.equal(scribble(torch.zeros(4, 4, device=SIM)).cpu(), scribble(torch.zeros(4, 4)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.uint8, torch.bool])
@pytest.mark.parametrize("number", [3.0, 0.1, 300, True, 1 + 2j])
def test_a_number_is_copied_as_on_the_cpu(dtype, number, recwarn):
    x = torch.zeros(2, dtype=dtype, device=SIM)
    assert x.copy_(number) is x
    assert x.tolist() == torch.zeros(2, dtype=dtype).copy_(number).tolist()


def test_autograd_watches_writes_in_place():
    leaf = torch.ones(3, device=SIM, requires_grad=True)
    y = leaf * 2
    y += 1
    y[0] = 0
    y.sum().backward()
    assert leaf.grad.tolist() == [0, 2, 2]
    with pytest.raises(RuntimeError, match="leaf Variable that requires grad"):
        leaf += 1
    saved = leaf.exp()
    saved += 1
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        saved.sum().backward()


def test_out_takes_the_result_and_its_shape():
    x = numbers()
    out = torch.empty(0, device=SIM)
    torch.mm(x, x.T, out=out)
    assert out.shape == (3, 3) and torch.equal(out.cpu(), numbers("cpu") @ numbers("cpu").T)
    values, places = torch.empty(3, device=SIM), torch.empty(3, dtype=torch.long, device=SIM)
    torch.max(x, 1, out=(values, places))
    assert values.tolist() == [3, 7, 11] and places.tolist() == [3, 3, 3]


def test_gradients_cross_devices():
    host = torch.ones(3, requires_grad=True)
    moved = host.to(SIM)
    (moved * moved.to("sim:1").to("sim:0")).sum().backward()
    assert host.grad.is_cpu and host.grad.tolist() == [2, 2, 2] and not moved.is_leaf


# --- .data, copies, pickles


def test_data_replaces_values_device_and_dtype():
    plain = torch.ones(3)
    plain.data = plain.to(SIM)
    assert plain.is_sim
    same = torch.ones(3, device=SIM)
    same.data = torch.zeros(2, device=SIM)
    assert same.tolist() == [0, 0]
    weight = nn.Parameter(torch.ones(3))
    weight.data = torch.zeros(2, dtype=torch.float16, device="sim:1")
    assert isinstance(weight, nn.Parameter) and weight.requires_grad and weight.is_leaf
    assert (weight.get_device(), weight.dtype, weight.shape) == (1, torch.float16, (2,))
    weight.data.add_(3)
    assert weight.tolist() == [3, 3]


@pytest.mark.parametrize("place", ["cpu", "meta", "sim:1"])
def test_a_tensor_made_like_another_is_where_it_is_asked_for(place):
    x = torch.ones(2, 3, device="sim:0")
    made = [getattr(torch, f"{kind}_like")(x, device=place) for kind in ("empty", "zeros", "rand")]
    made += [torch.full_like(x, 2.0, device=place), x.new_zeros(2, device=place)]
    assert {str(tensor.device) for tensor in made} == {place}
    assert torch.zeros_like(x).device == x.new_empty(2).device == x.device


def test_deepcopy():
    net = nn.Linear(2, 2).sim()
    net(torch.ones(1, 2, device=SIM)).sum().backward()
    net.weight.note = ["kept"]
    copied = copy.deepcopy(net)
    assert isinstance(copied.weight, nn.Parameter) and copied.weight.is_sim
    assert torch.equal(copied.weight.grad, net.weight.grad)
    assert copied.weight.grad is not net.weight.grad
    assert copied.weight.note == ["kept"] and copied.weight.note is not net.weight.note
    with torch.no_grad():
        copied.weight.zero_()
    assert net.weight.abs().sum() > 0
    x = numbers()
    base, view = copy.deepcopy([x, x[1]])
    view.fill_(99)
    assert base[1].tolist() == [99] * 4 and x[1].tolist() == [4, 5, 6, 7]
    with pytest.raises(RuntimeError, match="graph leaves"):
        copy.deepcopy(net.weight * 2)


def test_pickle():
    copied = pickle.loads(pickle.dumps({"x": numbers("sim:1")[1:], "net": nn.Linear(2, 2).sim()}))
    assert copied["x"].get_device() == 1 and copied["x"].tolist() == numbers("cpu")[1:].tolist()
    assert copied["net"].weight.is_sim and isinstance(copied["net"].weight, nn.Parameter)


def saved(thing):
    """Return a file object with what ``torch.save`` wrote, at its start."""
    file = io.BytesIO()
    torch.save(thing, file)
    file.seek(0)
    return file


@pytest.mark.parametrize(
    ("where", "found"),
    [
        (None, "sim:0"),
        (torch.device("cpu"), "cpu"),
        ("sim", "sim:0"),
        (("device", "sim:1"), "sim:1"),
        ({"sim:0": "sim:1"}, "sim:1"),
        ({"sim:0": "cpu"}, "cpu"),
        (lambda storage, place: storage, "cpu"),
        (lambda storage, place: None, "sim:0"),
        ("meta", "meta"),
    ],
)
@pytest.mark.parametrize("weights_only", [True, False])
def test_load_with_every_kind_of_map_location(where, found, weights_only):
    if isinstance(where, tuple):
        where = torch.device(where[1])  # not possible before the device is enabled
    x = numbers()
    file = saved({"x": x, "row": x[1], "net": nn.Linear(2, 2).sim().state_dict(), "host": ones()})
    loaded = torch.load(file, map_location=where, weights_only=weights_only)
    assert {loaded["x"].device, loaded["net"]["weight"].device} == {torch.device(found)}
    if found == "meta":
        return
    assert torch.equal(loaded["x"].cpu(), numbers("cpu"))
    loaded["row"].fill_(50)  # views stay views
    assert loaded["x"][1].tolist() == [50] * 4
    named = isinstance(where, (str, torch.device))
    assert loaded["host"].device == torch.device(found if named else "cpu")


def test_tied_weights_stay_tied():
    first, second = nn.Linear(3, 3), nn.Linear(3, 3)
    second.weight = first.weight
    both = nn.ModuleList([first, second]).sim()
    for net in (both, copy.deepcopy(both), torch.load(saved(both), weights_only=False)):
        assert net[0].weight is net[1].weight and len(list(net.parameters())) == 3
    state = torch.load(saved(both.state_dict()))
    with torch.no_grad():
        state["0.weight"].fill_(4)
    assert state["1.weight"].eq(4).all()


def test_a_file_of_a_device_that_is_not_there():
    file = saved(numbers("sim:1"))
    simgpu.enable(devices=1)
    with pytest.raises(RuntimeError) as caught:
        torch.load(file)
    assert str(caught.value) == (
        "Attempting to deserialize object on sim device 1 but torch.sim.device_count() is 1. Please use "
        "torch.load with map_location to map your storages to an existing device."
    )
    file.seek(0)
    assert torch.load(file, map_location="sim:0").get_device() == 0


# --- Autograd and its tools


def hooked(device):
    """Return the log of (hook, device), and the gradient of the input, which a hook multiplies by 10."""
    log = []
    torch.manual_seed(0)
    net = nn.Linear(2, 2)
    net.weight.register_hook(lambda grad: log.append(("gradient", grad.device)))
    net.weight.register_post_accumulate_grad_hook(lambda p: log.append(("after", p.grad.device)))
    net.to(device)
    net.register_forward_pre_hook(lambda module, args: log.append(("before", args[0].device)))
    net.register_forward_hook(lambda module, args, out: log.append(("forward", out.device)))
    net.register_full_backward_hook(lambda module, gin, gout: log.append(("backward", gout[0].device)))
    x = torch.ones(1, 2, device=device, requires_grad=True)
    y = x * 1
    y.retain_grad()
    y.register_hook(lambda grad: grad * 10)
    net(y).sum().backward()
    assert torch.equal(x.grad, y.grad)
    return log, x.grad.cpu()


def test_hooks_run_as_on_the_cpu():
    on_cpu, expected = hooked("cpu")
    on_sim, gradient = hooked(SIM)
    assert [name for name, _ in on_sim] == [name for name, _ in on_cpu] and len(on_sim) == 5
    assert {str(device) for _, device in on_sim} == {"sim:0"}
    assert torch.equal(gradient, expected)


def test_a_custom_function_and_second_derivatives():
    class Square(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            return 2 * x * grad

    x = numbers().requires_grad_()
    (first,) = torch.autograd.grad(Square.apply(x).sum(), x, create_graph=True)
    (second,) = torch.autograd.grad((first * x).sum(), x)
    assert torch.equal(first.detach().cpu(), 2 * numbers("cpu"))
    assert torch.equal(second.cpu(), 4 * numbers("cpu"))
    x = torch.ones(3, dtype=torch.float64, device=SIM, requires_grad=True)
    assert torch.autograd.gradcheck(torch.sin, x)


# --- In inference mode, where PyTorch hands over operations that are made of others

MODULES = {
    "linear": (lambda: nn.Linear(4, 3), (2, 4)),
    "attention": (lambda: nn.TransformerEncoderLayer(8, 2, 16), (3, 2, 8)),
    "convolution": (lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)), (2, 3, 8, 8)),
    "gru": (lambda: nn.GRU(4, 5), (3, 2, 4)),
    "lstm": (lambda: nn.LSTM(4, 5, num_layers=2, bidirectional=True), (3, 2, 4)),
    "cell": (lambda: nn.GRUCell(4, 5), (2, 4)),
    "loss": (lambda: lambda x: F.cross_entropy(x, x.argmax(1)), (6, 10)),
    "distance": (lambda: lambda x: F.pairwise_distance(x, x + 1), (6, 10)),
    "larger": (lambda: lambda x: F.interpolate(x, scale_factor=2), (1, 1, 4, 4)),
}


@pytest.mark.parametrize("amp", [False, True])
@pytest.mark.parametrize("name", MODULES)
def test_inference_mode_does_what_no_grad_does(name, amp):
    make, shape = MODULES[name]
    torch.manual_seed(0)
    module, x = make(), torch.randn(shape)
    if isinstance(module, nn.Module):
        module.eval()
    with torch.no_grad():
        host = module(x)
    if isinstance(module, nn.Module):
        module.to(SIM)
    seen = {}
    for mode in (torch.no_grad, torch.inference_mode):
        there = x.to(SIM)
        if amp and not isinstance(module, nn.Module):
            there = there.bfloat16()
        with mode(), simgpu.count() as counted, torch.autocast(SIM, torch.bfloat16, enabled=amp):
            out = module(there)
            first = out[0] if isinstance(out, tuple) else out
            back = first.cpu()
            first.sum().item()
        assert back.device.type == "cpu" and first.device.type == SIM
        wanted = host[0] if isinstance(host, tuple) else host
        assert torch.allclose(back.float(), wanted, atol=0.05 if amp else 1e-5)
        waits = (counted.copies_to_host, counted.synchronizations)
        seen[mode] = (counted.launches, *waits, first.dtype)
    assert seen[torch.no_grad] == seen[torch.inference_mode]
