"""Hostile answers, and the process that stands for a kernel and is fed with them.

``python hostile.py SHARE OF FIRST END`` judges every ``OF``-th of all cases from number ``FIRST`` to
before ``END``, and prints one line of JSON before each and one after. The test reads them, and sees what died or hangs.
"""

from __future__ import annotations

import copy
import functools
import gc
import inspect
import json
import os
import random
import re
import signal
import sys
import textwrap
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from answers import every_wrong
from mutation import mutants

from course_utils.course import load_course
from course_utils.exercises import Exercise, lesson

LIMIT = 0.6
"""Seconds that a hostile answer gets: those that never end should not take the test an hour."""

EXERCISES = [e for entry in load_course().ready for e in lesson(entry.id)]
FUNCTIONS = (
    "01.speedup",
    "03.train_epoch",
    "07.mend_e",
    "02.tower",
    "03.step_losses",
    "05.unhang",
    "08.as_numpy",
)
"""Numbers, a training loop, a mended one, a module, a loop watched through a context, ranks in threads, a simulated device."""
VALUES = ("00.shut_door", "02.one_step_bytes", "08.memory_ledger")
UNSTOPPABLE = {("05.unhang", name) for name in ("power", "factorial", "regex")}
"""Loops in C that look for signals on the main thread alone, and let no other thread run: `guard` says so."""
MUTANTS = 40
OTHER = next(e for e in EXERCISES if e.id == "01.intensity")

# The body of a function with the stub's arguments; RIGHT(*ARGS) is what the reference would return.
BODIES = {
    # what never ends
    "spins": "while True: pass",
    "sleeps": "time.sleep(1e6)",
    "locks": "lock = threading.Lock(); lock.acquire(); lock.acquire()",
    "queue": "queue.Queue().get()",
    "event": "threading.Event().wait()",
    "joins": "t = threading.Thread(target=time.sleep, args=(60,), daemon=True); t.start(); t.join()",
    "pipe": "os.read(os.pipe()[0], 1)",
    "process": "subprocess.run([sys.executable, '-c', 'import time; time.sleep(5)'])",
    "sums": "sum(range(10**13))",
    "maximum": "max(itertools.count())",
    "power": "10**10**9",
    "factorial": "math.factorial(10**8)",
    "regex": "re.match('(a+)+$', 'a' * 40 + 'b')",
    "prints": "while True: print('x' * 1000)",
    "generator": "return list(x for x in itertools.count() if x < 0)",
    "swallows": "while True:\n    try: time.sleep(0.01)\n    except BaseException: pass",
    "swallows bare": "while True:\n    try:\n        for i in range(10**9): str(i)\n    except: continue",
    "swallows finally": "while True:\n    try: time.sleep(0.01)\n    finally: continue",
    "swallows deep": "def f():\n    try: time.sleep(1)\n    except BaseException: f()\nwhile True: f()",
    "swallows suppress": "while True:\n    with contextlib.suppress(BaseException): time.sleep(0.01)",
    "asks": "input('?')",
    # what would end the process
    "_exit": "os._exit(1)",
    "abort": "os.abort()",
    "kill": "os.kill(os.getpid(), signal.SIGTERM)",
    "kill all": "os.kill(0, 9)",
    "raise_signal": "signal.raise_signal(signal.SIGTERM)",
    "fork": "os.fork()",
    "exec": "os.execv(sys.executable, [sys.executable, '-c', ''])",
    "execl": "os.execlp('true', 'true')",
    "sys.exit": "sys.exit(1)",
    "exit": "exit()",
    "SystemExit": "raise SystemExit",
    "KeyboardInterrupt": "raise KeyboardInterrupt",
    "GeneratorExit": "raise GeneratorExit",
    "interrupt_main": "_thread.interrupt_main(); time.sleep(1)",
    # memory and depth
    "list": "[0] * 10**11",
    "list grows": "x = []\nwhile True: x.append(bytearray(10**6))",
    "small things": "x = [[i] for i in range(10**12)]",
    "bytes": "bytearray(10**12)",
    "tensor": "torch.ones(10**11)",
    "tensors": "x = []\nwhile True: x.append(torch.ones(10**7))",
    "recursion": "def f(): return f()\nf()",
    "recursion without limit": "sys.setrecursionlimit(10**9)\ndef f(): return f()\nf()",
    "recursive repr": "class A:\n    def __repr__(self): return repr(self)\nrepr(A())",
    "recursion in C": "sys.setrecursionlimit(10**9)\nclass A:\n    def __getattr__(self, n): return getattr(self, n + 'x')\nA().x",
    "recursive module": "class M(torch.nn.Module):\n    def forward(self, x): return self(x)\nsys.setrecursionlimit(10**9); M()(1)",
    "nested list": "x = []\nfor _ in range(10**6): x = [x]\nreturn x",
    # threads, hooks, destructors
    "threads": "def f():\n    while True: pass\nfor _ in range(3): threading.Thread(target=f).start()\nreturn RIGHT(*ARGS)",
    "many threads": "for _ in range(200): threading.Thread(target=time.sleep, args=(3,), daemon=True).start()\nreturn RIGHT(*ARGS)",
    "thread raises": "threading.Thread(target=lambda: 1 / 0).start()\nreturn RIGHT(*ARGS)",
    "autograd hook": "x = torch.ones(2, requires_grad=True); x.register_hook(lambda g: 1 / 0); (x * 2).sum().backward()",
    "autograd function": "class F(torch.autograd.Function):\n    @staticmethod\n    def forward(c, x): return x\n    @staticmethod\n    def backward(c, g): raise SystemExit\nF.apply(torch.ones(1, requires_grad=True)).backward()",
    "destructor": "class A:\n    def __del__(self): raise ValueError('late')\nA()\nreturn RIGHT(*ARGS)",
    "module hook": "m = torch.nn.Linear(2, 2); m.register_forward_hook(lambda *a: 1 / 0); m(torch.ones(2))",
    "crashing worker": "class D(torch.utils.data.Dataset):\n    def __len__(self): return 4\n    def __getitem__(self, i): raise KeyError(i)\nlist(torch.utils.data.DataLoader(D(), num_workers=1))",
    "error without text": "class E(Exception):\n    def __str__(self):\n        while True: pass\nraise E",
    "error exits": "class E(Exception):\n    def __str__(self): raise SystemExit\nraise E",
    # state of the process and of PyTorch; the answer itself is right
    **{
        f"state: {code}": f"{code}\nreturn RIGHT(*ARGS)"
        for code in (
            "torch.set_grad_enabled(False)",
            "torch.set_default_dtype(torch.float64)",
            "torch.set_default_device('meta')",
            "torch.set_num_threads(1)",
            "torch.use_deterministic_algorithms(True)",
            "torch.inference_mode().__enter__()",
            "torch.autograd.set_detect_anomaly(True)",
            "torch.autocast('cpu', dtype=torch.float16).__enter__()",
            "Dispatch().__enter__()",
            "Function().__enter__()",
            "torch.autograd.graph.saved_tensors_hooks(str, str).__enter__()",
            "torch.nn.modules.module.register_module_forward_hook(lambda *a: 1 / 0)",
            "torch.nn.Linear.forward = lambda *a: 1 / 0",
            "torch.nn.Linear.__call__ = lambda *a: 1 / 0",
            "torch.Tensor.__add__ = lambda *a: 1 / 0",
            "torch.optim.SGD.step = lambda *a: None",
            "torch.equal = torch.allclose = lambda *a, **k: True",
            "torch.manual_seed(0); random.seed(0)",
            "time.sleep = time.perf_counter = lambda *a: 0",
            "builtins.len = lambda x: 3",
            "builtins.isinstance = lambda *a: True",
            "builtins.getattr = builtins.print = None",
            "threading.Thread.start = lambda self: None",
            "threading.excepthook = None",
            "sys.stdout = None",
            "sys.stdout.close()",
            "sys.settrace(lambda *a: 1 / 0)",
            "sys.modules.pop('torch'); sys.modules.pop('math')",
            "os.chdir('/')",
            "os.environ.clear()",
            "gc.disable()",
            "warnings.simplefilter('error')",
            "signal.signal(signal.SIGINT, signal.SIG_IGN)",
            "core.Judge.no = core.Judge.is_a = lambda *a, **k: None",
            "core.Exercise.result = None",
            "core.same = lambda *a: True",
            "random.setstate = None",
        )
    },
    # what comes back
    **{
        f"returns: {code}": f"return {code}"
        for code in (
            "Odd()", "Liar()", "Loops()", "itertools.count()", "SELF", "torch.empty(3, device='meta')",
            "torch.eye(3).to_sparse()", "torch.tensor(1j)", "torch.empty(0)", "torch.tensor(math.nan)",
            "torch.ones(1).expand(10**5, 10**5)", "torch.nn.Parameter(torch.ones(2))",
            "numpy.array([object()], dtype=object)", "coroutine()", "lambda: 1", "int", "Ellipsis",
            "float('inf')", "10**5000", "'x' * 10**7", "{1: {2: {}}}", "NotImplemented",
        )
    },
    # later ideas: each got through once
    "later: checks in its check": "CHECK(RIGHT)",
    "later: an error whose class loops": "class E(Exception):\n    __class__ = property(loops)\nclass A(float):\n    def __eq__(self, other): raise E\n    __float__ = __mul__ = __eq__\nreturn A(1)",
    "later: a name taken before": "_exit(1)",
    "later: the module below": "posix._exit(1)",
    "later: threads that exit for ever": "def f():\n    while True:\n        try: os._exit(1)\n        except BaseException: pass\nthreading.Thread(target=f).start()\nreturn RIGHT(*ARGS)",
    "later: a destructor that loops": "class A:\n    __del__ = loops\na = A()\nreturn RIGHT(*ARGS)",
    "later: five destructors that loop": "class A:\n    __del__ = loops\na = [A() for _ in range(5)]\nreturn RIGHT(*ARGS)",
    "later: a callback of the garbage collector": "gc.callbacks.append(loops)\ngc.collect()\nreturn RIGHT(*ARGS)",
    "later: that callback afterwards": "gc.callbacks.append(loops)\nreturn RIGHT(*ARGS)",
    "later: an error that holds what loops": "class A:\n    __del__ = loops\na = A()\nraise ValueError",
    "later: an error before the error holds it": "class A:\n    __del__ = loops\ndef f(): a = A(); raise ValueError\ntry: f()\nexcept ValueError: raise KeyError",
    "later: a loop that holds it": "class A:\n    __del__ = loops\na = A()\nwhile True: pass",
    "later: a clock that goes back": "t = itertools.count(0, -1000)\ntime.monotonic = time.time = time.perf_counter = lambda: next(t)\nwhile True: pass",
    "later: a clock set by an administrator": "time.clock_settime(time.CLOCK_REALTIME, 0)",
    "later: a limit of the processor's time": "resource.setrlimit(resource.RLIMIT_CPU, (1, 1))\nfor _ in range(10**9): pass",
    **{
        f"later: {code}": f"{code}\nreturn RIGHT(*ARGS)"
        for code in (
            "threading.Timer(0.05, lambda: os._exit(1)).start()",
            "sys.path.clear()",
            "os.umask(0o777)",
            "sys.unraisablehook = sys.excepthook = sys.displayhook = loops",
            "sys.addaudithook(loops)",
            "[j.__setattr__('__class__', type('J', (type(j),), {'no': print})) for j in gc.get_objects() if type(j) is core.Judge]",
            "threading.settrace(lambda *a: 1 / 0)",
            "sys.setswitchinterval(1000)",
            "threading.stack_size(32768)",
            "torch.backends.mkldnn.enabled = False",
            "numpy.allclose = torch.linalg.norm = torch.nn.utils.clip_grad_norm_ = None",
            "torch.autocast.__enter__ = torch.amp.GradScaler.step = None",
            "OTHER.check_answer = OTHER.reference = None",
            # what a check runs through in Python's library and in PyTorch
            "contextlib.suppress.__exit__ = contextlib.redirect_stdout.__enter__ = fails",
            "contextlib._GeneratorContextManager.__enter__ = contextlib.ExitStack.__exit__ = fails",
            "dataclasses.replace = dataclasses.dataclass = fails",
            "textwrap.dedent = textwrap.indent = fails",
            "re._compile = re.compile = json.loads = json.dumps = fails",
            "pathlib.Path.read_text = pathlib.Path.__truediv__ = os.path.join = fails",
            "pathlib.Path.read_text = None",
            "tempfile.mkdtemp = tempfile.TemporaryDirectory.__enter__ = shutil.rmtree = fails",
            "random.Random.random = random.Random.seed = inspect.Signature.bind = fails",
            "linecache.getlines = traceback.StackSummary.format = fails",
            "threading.Event.wait = threading.Condition.wait = threading.enumerate = fails",
            "enum.EnumMeta.__call__ = abc.ABCMeta.__instancecheck__ = types.MethodType = fails",
            "warnings.catch_warnings.__enter__ = weakref.ref = collections.Counter.update = fails",
            "importlib.import_module = multiprocessing.active_children = statistics.median = fails",
            "torch._C._nn.cross_entropy_loss = torch._C._set_grad_enabled = fails",
            "torch._C._len_torch_dispatch_stack = torch._jit_internal.is_scripting = fails",
            "torch.nn.modules.conv.Conv2d.forward = torch.optim.Optimizer.zero_grad = fails",
            "torch.storage.UntypedStorage.nbytes = torch._ops.OpOverload.__call__ = fails",
            "torch.nn.Linear.__len__ = lambda self: 0",
            # what is kept in tables and objects, and no function of a module
            "copy._deepcopy_dispatch.clear()",
            "copy._deepcopy_dispatch[list] = copy._deepcopy_dispatch[dict] = fails",
            "torch.autograd.Variable._execution_engine = None",
            "random._inst = torch._C._autograd = None",
            "json._default_encoder = json._default_decoder = None",
        )
    },
}  # fmt: skip
LATER = sum(name.startswith("later: ") for name in BODIES)

# What is handed over in the place of a function.
ANSWERS = {
    code: code
    for code in (
        "print", "max", "int", "type", "Odd()", "Loops()", "torch.nn.Linear(2, 2)", "coroutine",
        "functools.partial(print, 1)", "lambda *a, **k: None", "lambda *, a: a", "lambda: 1", "Liar",
        "(x for x in ())", "SELF", "dict.get", "NotImplemented", "os._exit", "sys.exit",
        "time.sleep", "exec", "torch.add", "core.Exercise.check", "threading.Thread",
    )
}  # fmt: skip

PRELUDE = """
import _thread, abc, builtins, collections, contextlib, dataclasses, enum, functools, gc, importlib, inspect
import itertools, json, linecache, math, multiprocessing, os, pathlib, posix, queue, random, re, resource, shutil
import signal, statistics, subprocess, sys, tempfile, textwrap, threading, time, traceback, types, warnings, weakref
from os import _exit
import numpy, torch
from torch.overrides import TorchFunctionMode as Function
from course_utils.exercises import exercise as core
from torch.utils._python_dispatch import TorchDispatchMode

class Dispatch(TorchDispatchMode):
    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        return op(*args, **(kwargs or {}))

def fails(*a, **k):
    raise RuntimeError("never")

def loops(*a, **k):
    while True:
        pass

async def coroutine(*a):
    return a

NAMES = "eq ne bool repr str len iter getattr float int index hash call add mul lt gt contains getitem"
Odd = type("Odd", (), {f"__{n}__": fails for n in NAMES.split()})
Loops = type("Loops", (), {f"__{n}__": loops for n in NAMES.split() if n != "getattr"})

class Liar(float):
    __class__ = property(lambda self: float)
    def __eq__(self, other): return True
    def __float__(self): return loops()
    def __hash__(self): return 0

SELF = []
SELF.append(SELF)
"""


class Case(NamedTuple):
    """One answer to one exercise; ``make`` returns the answer."""

    name: str
    exercise: Exercise
    make: Callable[[], Any]
    hostile: bool


def cases() -> Iterator[Case]:
    """All answers in a fixed order: hostile ones, known wrong ones, mutants."""
    by_id = {e.id: e for e in EXERCISES}
    for exercise in map(by_id.get, FUNCTIONS):
        for name, body in BODIES.items():
            if (exercise.id, name) in UNSTOPPABLE:
                continue
            yield Case(name, exercise, lambda e=exercise, b=body: make_function(e, b), True)
        for name in ANSWERS:
            yield Case(f"is: {name}", exercise, lambda n=name: _value(n), True)
    for exercise in map(by_id.get, VALUES):
        for name in [n for n in BODIES if n.startswith("returns: ")]:
            code = name.removeprefix("returns: ")
            yield Case(f"is: {code}", exercise, lambda c=code: _value(c), True)
    for exercise in EXERCISES:
        for diagnosis, answer in every_wrong(exercise):
            yield Case(f"wrong: {diagnosis}", exercise, lambda a=answer: a, False)
    dice = random.Random(6)
    every = [(e, m) for e in EXERCISES if not e.wants_value for m in mutants(e.source)]
    for exercise, mutant in dice.sample(every, MUTANTS):
        yield Case(
            f"mutant: {mutant.change}",
            exercise,
            lambda e=exercise, m=mutant: _named(e, m.source, dict(e.reference.__globals__)),
            True,
        )


def _named(exercise: Exercise, source: str, names: dict[str, Any]) -> Any:
    exec(compile(source, "<the answer>", "exec"), names)
    return names[exercise.reference.__name__]


def _names() -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(PRELUDE, names)
    return names


def make_function(exercise: Exercise, body: str) -> Any:
    """Return an answer with the stub's name and arguments."""
    signature = inspect.signature(exercise.reference)
    source = f"def {exercise.slug}{signature}:\n" + textwrap.indent(body, "    ")
    arguments = ", ".join(signature.parameters)
    source = source.replace("*ARGS", arguments)
    names = _names() | {"CHECK": exercise.result, "OTHER": OTHER}
    return _named(exercise, source, names | {"RIGHT": exercise.reference})


def _value(code: str) -> Any:
    return eval(compile(code, "<the answer>", "eval"), _names())


@functools.cache
def replaced() -> list[tuple[Any, str]]:
    """The owner and the name of all that `BODIES` replace."""
    names = _names() | {"OTHER": OTHER}
    paths = {p for body in BODIES.values() for p in re.findall(r"((?:\w+\.)+\w+) (?==)", body)}
    return [(eval(owner, names), name) for owner, _, name in (p.rpartition(".") for p in paths)]


def state() -> dict[str, Any]:
    """What must be as before after each check."""
    import builtins
    import threading

    return {
        "gradients": torch.is_grad_enabled(),
        "inference": torch.is_inference_mode_enabled(),
        "dtype": torch.get_default_dtype(),
        "device": torch.get_default_device(),
        "threads of PyTorch": torch.get_num_threads(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "anomaly": torch.is_anomaly_enabled(),
        "autocast": torch.is_autocast_enabled("cpu"),
        "autocast dtype": torch.get_autocast_dtype("cpu"),
        "modes": (torch._C._len_torch_dispatch_stack(), torch._C._len_torch_function_stack()),
        "generator": torch.get_rng_state().sum().item(),
        "random": random.getstate()[1][:5],
        "folder": os.getcwd(),
        "environment": dict(os.environ),
        "output": sys.stdout,
        "depth": sys.getrecursionlimit(),
        "trace": sys.gettrace(),
        "collects": gc.isenabled(),
        "warnings": [str(entry) for entry in warnings.filters],
        "signals": [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM, signal.SIGALRM)],
        "alarm": signal.getitimer(signal.ITIMER_REAL),
        "input": builtins.input,
        "functions": [os._exit, os.fork, os.kill],
        "hook": threading.excepthook,
        "path": [*sys.path],
        "threads' trace": threading.gettrace(),
        "timers": sum(isinstance(t, threading.Timer) and not t.finished.is_set() for t in threading.enumerate()),
        "mask": (mask := os.umask(0o022), os.umask(mask))[0],
        "interval": sys.getswitchinterval(),
        "stack": threading.stack_size(),
        "mkldnn": torch.backends.mkldnn.enabled,
        "replaced": [id(getattr(owner, name, None)) for owner, name in replaced()],
        "hooks of modules": len(torch.nn.modules.module._global_forward_hooks),
        "spinning threads": [t.name for t in threading.enumerate() if "(f)" in t.name],
        "limits": _limits(),
    }  # fmt: skip


def _limits() -> object:
    import resource

    return resource.getrlimit(resource.RLIMIT_DATA)


def judge(case: Case, again: bool) -> dict[str, Any]:
    """Judge one case; say what came of it, how long it took, and what it left changed."""
    exercise, answer = case.exercise, case.make()
    before = state()
    if case.hostile:
        exercise = copy.copy(exercise)
        exercise.limit = LIMIT
    begun = time.monotonic()
    result = exercise.result(answer)
    seconds = time.monotonic() - begun
    time.sleep(0.01)  # for threads that were told to end
    text, after = result.bundle().text, state()
    found = {
        "outcome": result.outcome,
        "diagnosis": result.diagnosis,
        "late": seconds > exercise.limit + 6,
        "seconds": round(seconds, 2),
        "text": text if len(text) < 4000 else f"too long: {len(text)}",
        "changed": [name for name in before if before[name] != after[name]],
    }
    if again or found["changed"]:
        reference = case.exercise.reference
        answer = reference() if case.exercise.wants_value else reference
        found["then"] = case.exercise.result(answer).outcome
        diagnosis, answer = first_wrong(case.exercise.id)
        after = case.exercise.result(answer)
        found["then wrong"] = after.diagnosis == diagnosis or f"{after.outcome} {after.diagnosis}"
    return found


@functools.cache
def first_wrong(name: str) -> tuple[str, Any]:
    """Return a known wrong answer to an exercise, after its diagnosis."""
    return every_wrong(next(e for e in EXERCISES if e.id == name))[0]


def main(share: int, of: int, first: int, end: int) -> None:
    """Judge a share of all cases, from one to before another."""
    out = os.fdopen(os.dup(1), "w", buffering=1)
    todo = [(i, case) for i, case in enumerate(cases()) if i % of == share and first <= i < end]
    for name in FUNCTIONS:  # the first optimiser of a process imports for seconds
        exercise = next(e for e in EXERCISES if e.id == name)
        exercise.result(exercise.reference)
    for i, case in todo:
        print(json.dumps({"case": i, "name": f"{case.exercise.id} {case.name}"}), file=out)
        print(json.dumps(judge(case, again=case.hostile or i % 10 == 0)), file=out)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
