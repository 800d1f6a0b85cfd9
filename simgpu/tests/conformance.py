"""Compare the simulated device with the CPU on PyTorch's own test databases of operators and modules.

Run: ``python -m simgpu.tests.conformance``. Every operator and every ``nn`` module runs on every sample
input of PyTorch's own tests, forward and backward; the device must return what the CPU returns. The cases
run in worker processes, so that a crash or a hang is one line of the report.
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import queue
import random
import sys
import textwrap
import types
import unittest
import warnings
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch.utils import _pytree as pytree

import simgpu

GOAL = 99.5  # percent
LIMIT_SECONDS = 240.0  # seconds for one case
START_SECONDS = 180.0  # seconds for a worker to import PyTorch's databases
SEED = 1234

# Cases that may differ, and why.
REASONS: dict[str, str] = {
    "sparse.sampled_addmm": "needs compressed sparse rows, a layout the simulated device refuses",
    "sparse.mm.reduce": "needs compressed sparse rows, a layout the simulated device refuses",
}

# Their results are uninitialized.
UNINITIALIZED = ("empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided")

# All tensor arguments but the first stay on the CPU, as with CUDA.
HOST_ARGUMENTS = ("tensor_split",)

# What the tests run: these, by kind, and one in SAMPLE_EVERY of the others, by a hash of the name.
SAMPLE_EVERY = 5
SELECTED = {
    "pointwise": "add sub mul div pow maximum where lerp eq isnan exp sqrt sigmoid tanh clamp copysign",
    "reductions": "sum mean std amax argmax cumsum norm logsumexp softmax sort topk median",
    "products": "matmul mm bmm addmm einsum linalg.inv",
    "views": "reshape view permute transpose expand squeeze as_strided chunk tensor_split conj imag",
    "joins and indices": "cat stack gather scatter_add index_put masked_fill masked_select nonzero "
    "__getitem__",
    "sparse": "to_sparse sparse.mm",
    "factories": "zeros_like arange randn bernoulli item to clone",
    "functional": "nn.functional.conv2d nn.functional.batch_norm nn.functional.gelu nn.functional.dropout "
    "nn.functional.embedding nn.functional.scaled_dot_product_attention nn.functional.pad",
    "modules": "nn.Linear nn.Conv2d nn.ConvTranspose2d nn.BatchNorm2d nn.LayerNorm nn.GroupNorm "
    "nn.Embedding nn.ReLU nn.MaxPool2d nn.AdaptiveAvgPool2d nn.LSTM nn.GRUCell nn.MultiheadAttention "
    "nn.CrossEntropyLoss nn.LazyConv2d",
}


@dataclass(frozen=True)
class Outcome:
    """The result of testing one operator or module."""

    name: str
    verdict: str
    # equal (bit for bit), close (but for rounding), differs, raises, crashes, hangs, or not run
    # where the CPU itself runs no sample of it
    samples: int = 0  # how many the CPU ran
    message: str = ""  # the first sample that is not equal, and why

    @property
    def good(self) -> bool:
        """Whether the device returned what the CPU returns."""
        return self.verdict in ("equal", "close")


@dataclass(frozen=True)
class Sample:
    """One sample input: what to call on a device, and whether to differentiate it."""

    text: str
    # From a device's name to the inputs, the outputs, and the outputs to differentiate.
    call: Callable[[str], tuple[Any, Any, Any]]
    backward: bool
    values: bool = True


# ---------------------------------------------------------------------------- one sample, two devices


def judge(name: str, samples: Iterable[Sample], device: str = "sim") -> Outcome:
    """Run every sample on the CPU and on the device under test; return the worst verdict.

    It stops at the first sample that differs or raises. A sample on which the CPU raises must raise on the
    device too, and is not counted.
    """
    ran = 0
    verdict, message, first_error = "equal", "", ""
    for case in samples:
        expected = _attempt(case, "cpu")
        if isinstance(expected["forward"], Exception):
            if not isinstance(_attempt(case, device)["forward"], Exception):
                verdict = "differs"
                message = f"{case.text}: the CPU raises {_sentence(expected['forward'])}"
                break
            first_error = first_error or f"{case.text}: {_sentence(expected['forward'])}"
            continue
        ran += 1
        sample_verdict, reason = _compare(case, expected, _attempt(case, device), device)
        if sample_verdict != "equal" and (verdict == "equal" or sample_verdict != "close"):
            verdict, message = sample_verdict, f"{case.text}: {reason}"
        if verdict in ("differs", "raises"):
            break
    if not ran and verdict == "equal":
        verdict, message = "not run", first_error or "there is no sample"
    return Outcome(name, verdict, ran, message)


def _attempt(case: Sample, device: str) -> dict[str, Any]:
    """Run a sample on a device; return the results by stage: "forward" and "backward".

    For a stage that raised, the result is the exception.
    """
    torch.manual_seed(SEED)
    try:
        inputs, outputs, differentiable = case.call(device)
    except Exception as error:  # noqa: BLE001  (what it raises is the result)
        return {"forward": error}
    results: dict[str, Any] = {"forward": (outputs, inputs)}
    if case.backward:
        try:
            _differentiate(differentiable, device)
            results["backward"] = [leaf.grad for leaf in _leaves(inputs)]
        except Exception as error:  # noqa: BLE001
            results["backward"] = error
    return results


def _differentiate(outputs: Any, device: str) -> None:
    """Run backward from all outputs, each with a fixed random gradient."""
    outputs = [x for x in _tensors(outputs) if x.requires_grad]
    generator = torch.Generator().manual_seed(SEED)
    cotangents = [torch.randn(x.shape, dtype=x.dtype, generator=generator) for x in outputs]
    if outputs:
        torch.autograd.backward(outputs, [to_device(c, device) for c in cotangents])


def _compare(case: Sample, expected: dict[str, Any], actual: dict[str, Any], device: str) -> tuple[str, str]:
    """Return the verdict on one sample, and the reason if it is not "equal"."""
    verdict, reason = "equal", ""
    for stage, reference in expected.items():
        value = actual[stage]
        if isinstance(reference, Exception):
            if not isinstance(value, Exception):
                return "differs", f"{stage}: the CPU raises {_sentence(reference)}"
            continue
        if isinstance(value, Exception):
            return "raises", f"{stage}: {_sentence(value)}"
        reason_text = difference(reference, value, device, values=case.values)
        if not reason_text:
            continue
        again = _attempt(case, "cpu")[stage]
        if difference(reference, again, "cpu") and not difference(reference, value, device, values=False):
            continue  # the CPU does not agree with itself
        worse = difference(reference, value, device, exact=False, values=case.values)
        if worse:
            return "differs", f"{stage}: {worse}"
        verdict, reason = "close", f"{stage}: {reason_text}"
    return verdict, reason


def difference(reference: Any, value: Any, device: str, *, exact: bool = True, values: bool = True) -> str:
    """Return in one line how results of a device differ from the CPU's, or "" if they do not.

    Without ``exact``, the tolerances of ``torch.testing.assert_close`` apply; without ``values``, only
    structure, shape, dtype and device are compared.
    """
    reference_leaves, reference_structure = pytree.tree_flatten(reference)
    leaves, structure = pytree.tree_flatten(value)
    if reference_structure != structure:
        return f"the structure is {structure}, not {reference_structure}"
    for a, b in zip(reference_leaves, leaves, strict=True):
        if isinstance(a, torch.Tensor):
            reason_text = _tensor_difference(a, b, device, exact, values)
        else:
            reason_text = _plain_difference(a, b, device)
        if reason_text:
            return reason_text
    return ""


def _plain_difference(a: Any, b: Any, device: str) -> str:
    """Return how a value that is not a tensor differs, or ""."""
    if isinstance(a, torch.device):
        a = torch.device(device)
        b = torch.device(b.type) if isinstance(b, torch.device) else b
    both_nan = isinstance(a, float) and isinstance(b, float) and math.isnan(a) and math.isnan(b)
    return "" if type(a) is type(b) and (both_nan or a == b) else f"{b!r}, not {a!r}"


def _tensor_difference(a: torch.Tensor, b: Any, device: str, exact: bool, values: bool) -> str:
    """Return how a tensor differs, or ""."""
    if not isinstance(b, torch.Tensor):
        return f"{type(b).__name__}, not a tensor"
    if b.device.type != torch.device(device).type:
        return f"the result lies on {b.device}, not on {device}"
    for word in ("dtype", "layout", "shape", "requires_grad"):
        if getattr(a, word) != getattr(b, word):
            return f"{word} is {getattr(b, word)}, not {getattr(a, word)}"
    if not values:
        return ""
    tolerance = {"rtol": 0, "atol": 0} if exact else {}
    a, b = a.detach(), b.detach().cpu()
    if a.dtype.is_floating_point and a.dtype.itemsize == 1:  # float8 has no comparison
        a, b = a.float(), b.float()
    try:
        torch.testing.assert_close(b, a, equal_nan=True, check_stride=False, **tolerance)
    except AssertionError as error:
        return f"{'x'.join(map(str, a.shape)) or 'scalar'}: {textwrap.shorten(str(error), 400)}"
    return ""


def _sentence(error: Exception) -> str:
    """Return an exception's type and message in one line."""
    return f"{type(error).__name__}: {textwrap.shorten(str(error), 400)}"


def _tensors(tree: Any) -> list[torch.Tensor]:
    """Return the tensors in a pytree."""
    return [x for x in pytree.tree_leaves(tree) if isinstance(x, torch.Tensor)]


def _leaves(tree: Any) -> list[torch.Tensor]:
    """Return the autograd leaves in a pytree that require a gradient."""
    return [x for x in _tensors(tree) if x.requires_grad and x.is_leaf]


def to_device(tree: Any, device: str) -> Any:
    """Return a copy of a pytree of arguments on a device, with autograd leaves of the same strides.

    A tensor that occurs twice in ``tree`` stays one tensor; the CPU as a device or as "cpu" is replaced by
    the device.
    """
    done: dict[int, torch.Tensor] = {}

    def move(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            if id(value) not in done:
                done[id(value)] = _copy(value, device)
            return done[id(value)]
        if isinstance(value, torch.device) and value.type == "cpu":
            return torch.device(device)
        return device if isinstance(value, str) and value == "cpu" else value

    return pytree.tree_map(move, tree)


def _copy(tensor: torch.Tensor, device: str) -> torch.Tensor:
    """Return a copy of a tensor on a device, as an autograd leaf with the same strides."""
    plain = tensor.detach()
    moved = plain.to(device, copy=True)
    if plain.layout is torch.strided and not plain.is_nested and moved.stride() != plain.stride():
        sizes = zip(plain.shape, plain.stride(), strict=True)
        extent = 1 + sum((size - 1) * stride for size, stride in sizes)
        flat = plain.as_strided((extent,), (1,)).to(device, copy=True)
        moved = flat.as_strided(plain.shape, plain.stride())
    return moved.requires_grad_(tensor.requires_grad)


# ---------------------------------------------------------------------------- PyTorch's databases


def _databases() -> dict[str, dict[str, Any]]:
    """Return PyTorch's ``op_db`` and ``module_db`` by name: ``{"operators": {...}, "modules": {...}}``."""
    try:
        import expecttest  # noqa: F401
    except ImportError:  # PyTorch's test helpers take a base class from it, which nothing here uses
        stand_in: Any = types.ModuleType("expecttest")
        stand_in.TestCase = unittest.TestCase
        sys.modules["expecttest"] = stand_in
    from torch.testing._internal.common_methods_invocations import op_db
    from torch.testing._internal.common_modules import module_db

    return {
        "operators": {op.full_name: op for op in op_db},
        "modules": {module.name: module for module in module_db},
    }


def operator_samples(op: Any) -> Iterator[Sample]:
    """Yield the samples of an operator of ``op_db``, of the dtype that `samples_of` chooses."""
    backward, samples = samples_of(op)
    for number, sample in enumerate(samples, 1):
        yield Sample(
            text=f"sample {number}",
            call=partial(_call_operator, op, sample),
            backward=backward,
            values=op.name not in UNINITIALIZED,
        )


def samples_of(op: Any) -> tuple[bool, Iterator[Any]]:
    """Return whether an operator is differentiated, and an iterator over its sample inputs.

    They are of float32 if it supports that, else of its widest float dtype, else complex, else any.
    """

    def order(dtype: torch.dtype) -> tuple[bool, bool, bool, int, str]:
        is_float = dtype.is_floating_point
        widest = -dtype.itemsize
        return (dtype is not torch.float32, not is_float, not dtype.is_complex, widest, str(dtype))

    dtype = min(op.supported_dtypes("cpu"), key=order, default=None)
    if dtype is None:
        return False, iter(())
    backward = op.supports_autograd and dtype in op.supported_backward_dtypes("cpu")
    _seed()
    return backward, _samples(op, dtype, backward)


def _samples(op: Any, dtype: torch.dtype, backward: bool) -> Iterator[Any]:
    """Yield an operator's sample inputs; none if PyTorch needs a GPU to choose them."""
    try:
        yield from op.sample_inputs("cpu", dtype, requires_grad=backward)
    except (RuntimeError, AssertionError) as error:  # the latter of a PyTorch without CUDA
        if "NVIDIA driver" not in str(error) and "compiled with CUDA" not in str(error):
            raise


def _seed() -> None:
    """Seed the random generators of Python and PyTorch."""
    random.seed(SEED)
    torch.manual_seed(SEED)


def _call_operator(op: Any, sample: Any, device: str) -> tuple[Any, Any, Any]:
    """Call an operator on a device; return inputs, outputs, and the outputs to differentiate."""
    first, args, kwargs = to_device((sample.input, sample.args, sample.kwargs), device)
    if op.name in HOST_ARGUMENTS:
        args, kwargs = to_device((sample.args, sample.kwargs), "cpu")
        inputs: Any = first
    else:
        inputs = (first, args, kwargs)
    with nullcontext() if _says_where(sample) else torch.device(device):
        outputs = op(first, *args, **kwargs)
    return _tensors(inputs), outputs, sample.output_process_fn_grad(outputs)


def _says_where(sample: Any) -> bool:
    """Return whether a tensor or device among the arguments determines where the operator runs."""
    leaves = pytree.tree_leaves((sample.input, sample.args, sample.kwargs))
    return any(isinstance(x, (torch.Tensor, torch.device)) or x == "cpu" for x in leaves)


def module_samples(info: Any, dtype: torch.dtype = torch.float32) -> Iterator[Sample]:
    """Yield the samples of a module of ``module_db``, in training and, if that differs, in evaluation."""
    for training in (True, False) if info.train_and_eval_differ else (True,):
        _seed()
        inputs = info.module_inputs_func(
            info, device="cpu", dtype=dtype, requires_grad=True, training=training
        )
        mode = "train" if training else "eval"
        for number, sample in enumerate(inputs, 1):
            constructor, inputs = sample.constructor_input, sample.forward_input
            yield Sample(
                text=f"sample {number} {mode}",
                call=partial(_call_module, info.module_cls, training, constructor, inputs),
                # As on CUDA, recurrent networks have a backward pass in training mode only.
                backward=training or not issubclass(info.module_cls, torch.nn.RNNBase),
            )


def _call_module(
    module_class: Any, training: bool, constructor: Any, inputs: Any, device: str
) -> tuple[Any, Any, Any]:
    """Create and call a module on a device; return (inputs, state), outputs, outputs to differentiate."""
    module = module_class(*deepcopy(constructor.args), **deepcopy(constructor.kwargs)).train(training)
    module.to(device)
    torch.manual_seed(SEED)
    args, kwargs = to_device((inputs.args, inputs.kwargs), device)
    outputs = module(*args, **kwargs)
    state = dict(module.state_dict(keep_vars=True))
    return (_tensors((args, kwargs)), state), outputs, outputs


# ---------------------------------------------------------------------------- workers


def work(connection: Any) -> None:
    """Run a worker process: send the names of all cases, then an outcome for each name received.

    It ends at an empty name.
    """
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)  # the order of a sum must not depend on the machine's load
    simgpu.enable()
    databases = _databases()
    connection.send({family: list(cases) for family, cases in databases.items()})
    while name := connection.recv():
        if name in databases["operators"]:
            outcome = judge(name, operator_samples(databases["operators"][name]))
        else:
            outcome = judge(name, module_samples(databases["modules"][name]))
            if outcome.verdict == "not run":  # its samples are of float64
                outcome = judge(name, module_samples(databases["modules"][name], torch.float64))
        connection.send(outcome)


class Worker:
    """A process that tests one case at a time; replaced if it dies or takes longer than ``limit`` seconds.

    ``target`` runs in it with its end of a pipe; see `work`.
    """

    def __init__(self, target: Callable[[Any], None] = work, limit: float = LIMIT_SECONDS) -> None:
        self._target, self._limit = target, limit
        self._process: Any = None
        self.names: dict[str, list[str]] = {}

    def start(self) -> None:
        """Start the process, unless it is running, and receive the names of its cases."""
        if self._process is not None:
            return
        context = multiprocessing.get_context("spawn")
        self._connection, child_end = context.Pipe()
        self._process = context.Process(target=self._target, args=(child_end,), daemon=True)
        self._process.start()
        child_end.close()
        if not self._connection.poll(START_SECONDS):
            raise TimeoutError("A worker did not come to its first case.")
        self.names = self._connection.recv()

    def judge(self, name: str) -> Outcome:
        """Test one case, and return its outcome; a crash or a timeout is an outcome, too."""
        self.start()
        try:
            self._connection.send(name)
            if self._connection.poll(self._limit):
                return self._connection.recv()
            verdict, message = "hangs", f"no answer within {self._limit:g} s"
        except (EOFError, OSError):
            self._process.join(5)
            verdict, message = "crashes", f"the process ended with {self._process.exitcode}"
        self.stop()
        return Outcome(name, verdict, 0, message)

    def stop(self) -> None:
        """Kill the process, if there is one."""
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._connection.close()
            self._process = None


def run(names: Sequence[str], workers: Sequence[Worker]) -> list[Outcome]:
    """Test the named cases on all workers in parallel; return the outcomes in the order of the names."""
    idle: queue.Queue[Worker] = queue.Queue()
    for worker in workers:
        idle.put(worker)

    def judge_one(name: str) -> Outcome:
        worker = idle.get()
        try:
            return worker.judge(name)
        finally:
            idle.put(worker)

    with ThreadPoolExecutor(len(workers)) as pool:
        return list(pool.map(judge_one, names))


# ---------------------------------------------------------------------------- report


def report(family: str, outcomes: Sequence[Outcome]) -> tuple[str, bool]:
    """Return the summary of operators or of modules as text, and whether they pass.

    They pass if the goal is reached and every difference has its reason in ``REASONS``.
    """
    ran = [outcome for outcome in outcomes if outcome.verdict != "not run"]
    bad = [outcome for outcome in ran if not outcome.good]
    equal = len(ran) - len(bad)
    share = 100 * equal / len(ran) if ran else 100.0
    samples = sum(outcome.samples for outcome in outcomes)
    lines = [
        f"{family}: {len(ran)} of {len(outcomes)} run on the CPU ({samples} samples), "
        f"{equal} equal = {share:.2f} % (the goal is {GOAL} %)"
    ]
    for o in bad:
        known = REASONS.get(o.name, "no reason on record")
        lines.append(f"  {o.verdict:<8} {o.name}: {o.message}\n           {known}")
    notes = {
        "equal but for rounding": [o.name for o in outcomes if o.verdict == "close"],
        "do not run on the CPU": [o.name for o in outcomes if o.verdict == "not run"],
        "no longer an exception": [o.name for o in outcomes if o.good and o.name in REASONS],
    }
    lines += [f"  {text} ({len(n)}): {', '.join(n)}" for text, n in notes.items() if n]
    return "\n".join(lines), share >= GOAL and all(o.name in REASONS for o in bad)


def _in_sample(name: str) -> bool:
    """Return whether a case is in the sample that the tests run."""
    chosen = any(name in names.split() for names in SELECTED.values())
    return chosen or zlib.crc32(name.encode()) % SAMPLE_EVERY == 0


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return 1 below the goal, or if a difference has no reason in ``REASONS``."""
    parser = argparse.ArgumentParser(prog="python -m simgpu.tests.conformance", description=__doc__)
    parser.add_argument("--only", nargs="+", metavar="NAME", help="these operators or modules only")
    parser.add_argument("--sample", action="store_true", help="the fixed sample that the tests run")
    parser.add_argument("--jobs", type=int, default=2, help="processes at a time (default: 2)")
    args = parser.parse_args(argv)
    if problem := simgpu.unavailable_reason():
        print(problem)
        return 1
    workers = [Worker() for _ in range(max(1, args.jobs))]
    passed = True
    try:
        workers[0].start()
        known = workers[0].names
        if missing := set(args.only or ()).difference(*known.values()):
            parser.error(f"There is no operator or module {', '.join(sorted(missing))} here.")
        for family, names in known.items():
            chosen = [n for n in names if not args.only or n in args.only]
            chosen = [n for n in chosen if not args.sample or _in_sample(n)]
            if chosen:
                text, family_passed = report(family, run(chosen, workers))
                passed = passed and family_passed
                print(text)
    finally:
        for worker in workers:
            worker.stop()
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
