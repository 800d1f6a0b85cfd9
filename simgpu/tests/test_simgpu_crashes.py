"""No program ends the process: each runs in a worker, whose death would be seen."""

import itertools
import os
import warnings
import zlib

import conformance
import pytest
import torch
from conformance import Outcome, Worker
from torch.utils._pytree import tree_leaves

import simgpu

ZERO = "z = torch._efficientzerotensor((3,), device=d); "
MASK = "m = torch.zeros(3, 5, device=d).bool(); m[1, 3:] = True; x = torch.randn(3, 5, 16, device=d); "
ENCODER = (
    "layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True); "
    "e = nn.TransformerEncoder(layer, 2).to(d).eval(); "
)
NET = "net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)).to(d); x = torch.ones(3, device=d); "

# What a program returns, or a part of the error that it is to give.
PROGRAMS = {
    # ZeroTensors: PyTorch makes them for derivatives that are zero.
    "x = torch.ones(3, device=d, requires_grad=True); x.sgn().sum().backward(); r = x.grad + 1": "1., 1., 1.",
    "r = torch.func.hessian(lambda a: (a * a).sum())(torch.ones(2, device=d))": "2., 0.",
    NET + "r = torch.allclose(torch.func.jacfwd(net)(x), torch.func.jacrev(net)(x))": "True",
    NET + "r = torch.func.hessian(lambda x: net(x).sum())(x).shape": "3, 3",
    NET + "r = torch.func.jvp(net, (x,), (x,))[1].shape": "Size([1])",
    NET + "out, f = torch.func.linearize(net, x); r = f(x).shape": "Size([1])",
    "f = lambda x: (x**3).sum(); x = torch.ones(2, device=d); "
    "r = torch.func.jvp(torch.func.grad(f), (x,), (x,))[1]": "6., 6.",
    "import torch.autograd.forward_ad as fw\n"
    "with fw.dual_level():\n"
    "    x = fw.make_dual(torch.ones(2, device=d), torch.ones(2, device=d))\n"
    "    r = fw.unpack_dual(x * torch.full((2,), 2.0, device=d)).tangent": "2., 2.",
    ZERO + "r = z + 1": "1., 1., 1.",
    ZERO + "r = torch.stack([z, z])[0].view(3, 1)[1].item()": "0.0",
    ZERO + "torch._foreach_add_([z.clone()], 1); r = copy.deepcopy(z).tolist()": "0.0, 0.0",
    ZERO + "b = io.BytesIO(); torch.save(z, b); b.seek(0); r = torch.load(b)": "0., 0., 0.",
    ZERO + "x = torch.ones(3, device=d); x.data = z; r = x + 1": "1., 1., 1.",
    # Storages
    "r = torch.UntypedStorage(16, device='sim').device": "sim:0",
    "r = torch.TypedStorage([1, 2], dtype=torch.float, device='sim').tolist()": "[1.0, 2.0]",
    "r = torch.UntypedStorage([1, 2]).to(device='sim').tolist()": "[1, 2]",
    "s = torch.ones(3).storage().to(device='sim'); r = torch.empty(0, device=d).set_(s)": "1., 1., 1.",
    "torch.UntypedStorage(16, device='sim:9')": "invalid device ordinal",
    "s = torch.UntypedStorage(1 << 20, device='sim'); a = torch.sim.memory_allocated(); s.resize_(0); "
    "r = a - torch.sim.memory_allocated(), s.nbytes()": "(1048576, 0)",
    "x = torch.ones(1 << 18, device=d); x.untyped_storage().resize_(0); "
    "x + 1; r = x.untyped_storage().size()": "0",
    "r = copy.deepcopy(torch.UntypedStorage([1], device='sim')).device": "sim:0",
    # Nested tensors
    ENCODER
    + MASK
    + "\nwith torch.no_grad(): r = e(x, src_key_padding_mask=m)[1, 3:].abs().sum().item()": "0.0",
    ENCODER + MASK + "\nwith torch.inference_mode(): r = e(x, src_key_padding_mask=m).shape": "3, 5, 16",
    "torch.nested.as_nested_tensor([torch.ones(2, "
    "3, device=d), torch.ones(4, 3, device=d)])": "not nested ones",
    # What is compiled
    "r = torch.compile(lambda: torch.arange(3, device='sim'))()": "[0, 1, 2]",
    "r = torch.compile(lambda: torch.zeros(2, device='sim') "
    "+ 1, fullgraph=True, mode='max-autotune')()": "1., 1.",
    "r = torch.compile(lambda x: x.to('sim') + 1)(torch.ones(2))": "sim:0",
    "r = torch.compile(lambda x: x + torch.tensor([1, "
    "2], device=x.device))(torch.ones(2, device=d))": "2., 3.",
    "torch.set_default_device('sim'); "
    "r = torch.compile(lambda: torch.tensor([8]) + 1)()\ntorch.set_default_device(None)": "sim:0",
    # Others
    "r = torch.from_dlpack(torch.ones(3, device=d))": "sim:0",
    "torch.eye(3, device=d).to_sparse_csr()": "not torch.sparse_csr",
    "str(torch.zeros(3, 3, layout=torch.sparse_csr, device=d))": "not torch.sparse_csr",
    "r = torch.zeros(3, 3, layout=torch.sparse_coo, device=d).to_dense().sum()": "0., device='sim:0'",
    "torch.eye(3).to_sparse_csr().to(d).to_dense()": "not torch.sparse_csr",
    "torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(4, 3)]).to(d) + 1": "not nested ones",
    "torch.nested.nested_tensor([torch.ones(2, 3)], device=d) + 1": "not nested ones",
    "torch.from_dlpack(torch.utils.dlpack.to_dlpack(torch.ones(3, device=d))) + 1": "no device memory",
    "str(torch.from_dlpack(torch.utils.dlpack.to_dlpack(torch.ones(3, device=d))))": "no device memory",
    "torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8).to(d)": "Quantizedsim",
    "str(torch.quantize_per_tensor(torch.ones(3, device=d), 0.1, 0, torch.qint8))": "invalid type",
    "r = torch.quantize_per_tensor(torch.ones(3, device=d), 0.1, 0, torch.qint8).dequantize()": "1., 1., 1.",
    "r = torch.jit.trace(nn.Linear(3, 4).to(d), torch.ones(2, "
    "3, device=d))(torch.ones(2, 3, device=d)).shape": "2, 4",
    "torch.ones(3, device=d)[torch.tensor([7], device=d)]": "out of bounds",
    "x = torch.ones(3, device=d, requires_grad=True)\n"
    "def hook(g): raise ValueError('no')\n"
    "x.register_hook(hook); (x * 2).sum().backward()": "no",
    "x = torch.ones(2, device=d, requires_grad=True); "
    "f = lambda: (x * x).sum().backward(); ts = [threading.Thread(target=f) for _ in range(3)]; "
    "[t.start() for t in ts]; [t.join() for t in ts]; r = x.grad": "6., 6.",
}


def work(connection):
    """Run a worker whose requests are programs, or names of operators to differentiate."""
    warnings.simplefilter("ignore")
    for stream in (1, 2):  # PyTorch writes of errors that are meant
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
    torch.set_num_threads(1)
    simgpu.enable()
    operators = conformance._databases()["operators"]
    connection.send({"operators": list(operators)})
    while request := connection.recv():
        try:
            if request in operators:
                connection.send(Outcome(request, "equal", derive(operators[request])))
                continue
            names = {"d": torch.device("sim"), "torch": torch, "nn": torch.nn, "r": None}
            exec("import copy, io, threading\n" + request, names)
            connection.send(Outcome(request, "equal", message=str(names["r"])))
        except Exception as error:  # noqa: BLE001  (an error is an answer; only a death is none)
            connection.send(Outcome(request, "raises", message=str(error)))


def derive(op):
    """Differentiate an operator in four ways on its first samples; return how many succeeded."""
    worked = 0
    for sample in itertools.islice(conformance.samples_of(op)[1], 2):
        for way in (reverse, forward, dual, batched):
            x, args, kwargs = conformance.to_device((sample.input, sample.args, sample.kwargs), "sim")
            if op.name in conformance.HOST_ARGUMENTS:
                args, kwargs = sample.args, sample.kwargs

            def function(x, args=args, kwargs=kwargs, sample=sample):
                with torch.device("sim"):
                    return sample.output_process_fn_grad(op(x, *args, **kwargs))

            try:
                for result in way(function, x, (args, kwargs)):
                    str(result + 1)  # it is read
                worked += 1
            except Exception:  # noqa: BLE001  (many have no such derivative, on the CPU neither)
                pass
    return worked


def tensors(tree):
    """Return the tensors in a pytree."""
    return [x for x in tree_leaves(tree) if isinstance(x, torch.Tensor)]


def reverse(function, x, more):
    """Return first derivatives by reverse mode; compute second ones, too."""
    outputs = [y.abs().sum() for y in tensors(function(x)) if y.requires_grad]
    inputs = [y for y in tensors((x, more)) if y.requires_grad]
    if not outputs or not inputs:
        return []
    first = torch.autograd.grad(outputs, inputs, allow_unused=True, create_graph=True)
    again = [g.abs().sum() for g in first if g is not None and g.requires_grad]
    if again:
        torch.autograd.grad(again, inputs, allow_unused=True)
    return [g.detach() for g in first if g is not None]


def forward(function, x, more):
    """Return the function's value and its tangent by ``torch.func.jvp``."""
    x = x.detach()
    return tensors(torch.func.jvp(function, (x,), (torch.ones_like(x),)))


def dual(function, x, more):
    """Return tangents by dual numbers."""
    from torch.autograd import forward_ad

    with forward_ad.dual_level():
        x = forward_ad.make_dual(x.detach(), torch.ones_like(x.detach()))
        tangents = [forward_ad.unpack_dual(y * 2).tangent for y in tensors(function(x))]
        return [t.clone() for t in tangents if t is not None]


def batched(function, x, more):
    """Return the function's values under ``torch.func.vmap``."""
    x = x.detach()
    return tensors(torch.func.vmap(function, randomness="different")(torch.stack([x, x])))


@pytest.fixture(scope="module")
def worker():
    """Yield a started worker, and stop it after the tests."""
    one = Worker(work)
    one.start()
    yield one
    one.stop()


@pytest.mark.slow
@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program_works_or_is_refused_in_words(worker, program):
    outcome = worker.judge(program)
    assert outcome.verdict in ("equal", "raises"), outcome
    assert PROGRAMS[program] in outcome.message.replace("\n", " "), outcome


@pytest.mark.parametrize(
    "share",
    [
        pytest.param(25, id="sample", marks=pytest.mark.slow),
        pytest.param(1, id="all", marks=pytest.mark.everywhere),
    ],
)
def test_derivatives_of_every_operator_leave_the_process_alive(worker, share):
    chosen = [n for n in worker.names["operators"] if zlib.crc32(n.encode()) % share == 0]
    outcomes = [worker.judge(name) for name in chosen]
    assert not [o for o in outcomes if o.verdict in ("crashes", "hangs")]
    assert sum(o.samples for o in outcomes) > 3 * len(chosen)
