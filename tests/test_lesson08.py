"""Lesson 08: its checks judge what answers do, and the detective's loops are what they are said to be."""

from __future__ import annotations

import ast
import builtins
import gc
import inspect
import time
from functools import partial

import nbformat
import pytest
import torch
from answers import wrong
from harness import NOTEBOOKS
from support import skip

import simgpu
from course_lessons.lesson08 import detective, drawings, graphs, loops, sizes
from course_lessons.lesson08 import mend_d as in_mend_d
from course_lessons.lesson08 import mend_e as in_mend_e
from course_lessons.lesson08.checking import _cpu_run, faulty_run, reference_run
from course_lessons.lesson08.drawings import timelines
from course_lessons.lesson08.loader import Loader
from course_lessons.lesson08.mend_f import mend_f
from course_lessons.lesson08.regime import regime
from course_lessons.shared import memory, profiling, traces
from course_lessons.shared.profiling import Facts
from course_lessons.shared.traces import Trace
from course_utils import evidence
from course_utils.exercises import lesson, todo
from course_utils.timing import host_clock
from simgpu import profiles
from simgpu.clock import Span
from tools.records import lesson08 as experiments
from tools.records import loops_by_card

EX = lesson("08")
LETTERS = tuple(detective.CASES)
LOOPS = {  # each loop's regime, and what its check says of it
    "a": ("synchronisation", "each-parameter"),
    "b": ("loader", "each-sample"),
    "c": ("loader", "in-line"),
    "d": ("launch", "each-sample"),
    "e": ("compute", "as-slow"),
    "f": ("memory", "still-grows"),
}


@pytest.fixture
def sim():
    if problem := simgpu.unavailable_reason():
        skip(problem, until="2027-11-30")
    return simgpu.first()


def judged(name, answer):
    result = getattr(EX, name).result(answer)
    return result.outcome, result.diagnosis


# --- wrong answers


@pytest.mark.slow
@pytest.mark.parametrize("letter", LETTERS)
def test_the_given_loop_is_not_the_answer(sim, letter):
    faulty = detective.CASES[letter].loop
    assert judged(f"mend_{letter}", faulty) == ("not_yet", LOOPS[letter][1])


def test_the_gradients_of_loop_a_are_long_enough_for_clipping_to_show(sim):
    assert all(norm > 10 for norm in detective.run_on_cpu("a").result)


def test_an_error_is_the_learners(sim):
    def mend_d(model, batches, optimizer):
        return model(torch.zeros(2, 32))

    result = EX.mend_d.result(mend_d)
    assert (result.outcome, result.diagnosis) == ("raised", "RuntimeError")
    assert "device" in result.bundle().text


def test_a_stub_is_not_tried(sim):
    assert judged("mend_b", lambda *six: todo()) == ("not_tried", "")


# --- the learner's machine stays as it is


@pytest.mark.parametrize("letter", LETTERS)
def test_a_check_leaves_the_learners_device_alone(sim, letter):
    kept = torch.arange(4.0, device=sim)
    switches = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32

    def state():
        here = torch.sim.memory_allocated(sim), torch.sim.current_device(), torch.sim.device_count()
        return *here, simgpu.profile(sim), torch.sim.mem_get_info(sim)

    gc.collect()  # what other tests left behind may go at any time
    before = state()
    assert judged(f"mend_{letter}", getattr(EX, f"mend_{letter}").reference) == ("right", "")
    assert state() == before
    assert kept.tolist() == [0.0, 1.0, 2.0, 3.0]
    assert switches == (torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32)


def test_a_switch_that_was_on_already_does_not_mend_loop_e(sim):
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        assert judged("mend_e", loops.loop_e) == ("not_yet", "as-slow")
        assert judged("mend_e", in_mend_e.mend_e)[0] == "right"
        assert torch.get_float32_matmul_precision() == "high"
    finally:
        torch.set_float32_matmul_precision(before)


@pytest.mark.serial
@pytest.mark.parametrize("exercise", list(EX), ids=lambda exercise: exercise.slug)
def test_a_check_is_quick(sim, exercise):
    exercise.result(exercise.reference)  # what the check works out once
    taken = []
    for _ in range(3):
        begin = time.process_time()
        exercise.result(exercise.reference)
        taken.append(time.process_time() - begin)
    # Loop a has the most kernels, and is run twice: with values, and at a size that keeps a T4 busy.
    assert min(taken) < (0.5 if exercise.slug == "mend_a" else 0.3)


# --- without the simulated device


@pytest.fixture
def no_sim(monkeypatch):
    monkeypatch.setattr(
        simgpu, "unavailable_reason", lambda: "This PyTorch cannot have the simulated device."
    )
    for cached in (reference_run, faulty_run, _cpu_run):
        cached.cache_clear()
    yield
    _cpu_run.cache_clear()


@pytest.mark.slow
@pytest.mark.parametrize("exercise", list(EX), ids=lambda exercise: exercise.slug)
def test_without_the_simulated_device_results_are_judged(no_sim, exercise):
    result = exercise.result(exercise.reference)
    assert result.outcome == "right", result.bundle().text
    if exercise.slug not in ("mfu", "regime"):
        assert "the simulated device" in result.printed and "\n" not in result.printed


@pytest.mark.slow
def test_without_the_simulated_device_a_wrong_result_is_refused(no_sim):
    diagnoses = ("sum-of-norms", "in-order", "", "unweighted", "weights-dtype", "mean-of-means")
    for letter, diagnosis in zip(LETTERS, diagnoses, strict=True):
        if diagnosis:
            answer = wrong(getattr(EX, f"mend_{letter}"))[diagnosis]
            assert judged(f"mend_{letter}", answer)[1] == diagnosis
    assert judged("mend_c", lambda *five: [1.0])[1] == "wrong-value"


def test_without_the_simulated_device_a_case_shows_its_source_and_says_why(no_sim, capsys):
    detective.present("a")
    said = capsys.readouterr().out
    assert "def loop_a(model, batches, optimizer):" in said
    assert said.count("This PyTorch cannot have the simulated device.") == 1


# --- the cases


@pytest.mark.parametrize("letter", LETTERS)
def test_a_loop_has_the_regime_it_was_made_for(sim, letter):
    faulty = detective.run(letter)
    assert regime(faulty.facts) == LOOPS[letter][0], str(faulty.facts)


@pytest.mark.slow
@pytest.mark.parametrize("letter", LETTERS)
def test_a_mended_loop_is_faster_and_its_result_is_the_same(sim, letter):
    mend = getattr(EX, f"mend_{letter}").reference
    before, after = detective.run(letter, facts=False), detective.run(letter, mend, facts=False)
    assert after.seconds < 0.75 * before.seconds
    assert len(after.steps) == len(before.steps) >= 2
    small = [detective.run(letter, f, values=True, facts=False) for f in (None, mend)]
    assert small[1].result == pytest.approx(small[0].result, rel=0.02)
    again = detective.run(letter, mend, facts=False)
    assert again.seconds == pytest.approx(after.seconds, rel=1e-9)


def test_only_the_steps_of_the_faulty_loop_f_grow(sim):
    faulty, mended = detective.run("f"), detective.run("f", mend_f)
    first, *_, last = map(detective.computing_seconds, faulty.step_spans)
    assert last > 2 * first
    first, *_, last = map(detective.computing_seconds, mended.step_spans)
    assert last < 1.3 * first
    assert faulty.rest_seconds > 2 * mended.rest_seconds


@pytest.mark.slow
def test_the_trace_of_a_run_shows_its_steps(sim):
    grows = detective.run("f").trace
    steps = [span for span in grows.spans if span.kind == "phase"]
    assert [span.name for span in steps] == [f"step {i}" for i in range(1, 9)]
    assert steps[-1].seconds > 1.5 * steps[1].seconds
    assert not [lane for lane in grows.lanes if "device to host" in lane]
    assert [lane for lane in detective.run("a").trace.lanes if "device to host" in lane]


def test_a_lane_of_hairlines_is_as_high_as_it_is_busy(monkeypatch):
    shown = []
    monkeypatch.setattr(drawings, "present", lambda fig, alt: shown.append(fig))
    kernels = [Span("sim:0 compute", "k", i * 1e-5, i * 1e-5 + 3e-6, "kernel") for i in range(2400)]
    whole = Span("host", "load", 0.0, 2.4e-2, "work")
    timelines({"loop": Trace([*kernels, whole], "modelled")})
    bars = [bar for bar in shown[0].axes[0].patches if bar.get_height() < 0]
    assert len(bars) > 200
    assert all(abs(bar.get_height()) == pytest.approx(0.8 * 0.3, rel=0.05) for bar in bars)


def test_the_loader_loads_beside_the_training(sim):
    load, start = Loader.LOAD, Loader.START

    def seconds(train, epochs=1, **options):
        loader = Loader([(torch.zeros(2),)] * 8, **options)
        begin = host_clock(sim)()
        for _ in range(epochs):
            for _batch in loader:
                simgpu.host_work(train)
        return host_clock(sim)() - begin

    assert seconds(0.001) == pytest.approx(8 * (load + 0.001))
    # One worker: the training hides behind the loading. Two: half of the loading time.
    assert seconds(0.001, num_workers=1) == pytest.approx(start + 8 * load + 0.001)
    assert seconds(0.0, num_workers=2) == pytest.approx(2 * start + 4 * load)
    # A training that is slower than the loading is not held up, but by the first batch.
    assert seconds(2 * load, num_workers=1) == pytest.approx(start + load + 16 * load)
    # Workers start in each epoch, unless they persist.
    twice = {"epochs": 2, "num_workers": 2}
    assert seconds(0.0, **twice) == pytest.approx(2 * (2 * start + 4 * load))
    kept = seconds(0.0, persistent_workers=True, **twice)
    assert kept == pytest.approx(2 * start + 8 * load)
    # Beyond the cores, workers share them.
    assert seconds(0.0, num_workers=8) == pytest.approx(8 * start + 2 * load)
    with pytest.raises(ValueError, match="num_workers > 0"):
        Loader([], persistent_workers=True)


def test_the_loader_gives_its_batches_in_order_and_pinned_where_asked(sim):
    batches = [(torch.full((2,), float(i)), torch.tensor([i])) for i in range(5)]
    for workers, pin in ((0, False), (0, True), (3, False), (3, True)):
        got = list(Loader(batches, workers, pin))
        assert [y.item() for _, y in got] == [0, 1, 2, 3, 4]
        assert all(x.is_pinned() is pin for x, _ in got)


@pytest.mark.slow
def test_a_case_is_shown_and_set_beside_the_learners(sim, capsys):
    detective.present("d")
    said = capsys.readouterr().out
    assert "for i in range(len(x)):" in said
    assert "kernels launched" in said and "modelled" in said
    detective.present("d", in_mend_d.mend_d)
    said = capsys.readouterr().out
    assert "for i in range(len(x)):" not in said
    assert "before" in said and "after" in said
    slow, other = loops.loop_d, wrong(EX.mend_d)["unweighted"]
    for loop in (slow, other, lambda *_: todo(), lambda *_: 1 / 0):
        detective.present("d", loop)
        said = capsys.readouterr().out
        assert "Once the check says Right" in said and "before" not in said


def test_the_choices_are_the_faults_and_in_no_telling_order():
    assert sorted(detective.FAULTS.values()) == list(detective.CHOICES)
    assert list(detective.FAULTS.values()) != list(detective.CHOICES)
    assert set(detective.FAULTS) == set(LETTERS)


# --- what stands in the notebook is what is recorded and judged


@pytest.fixture(scope="module")
def taught():
    """Return all definitions and assignments in the notebook's cells, by name."""
    nb = nbformat.read(NOTEBOOKS / "08_profiling_and_speed.ipynb", 4)
    found = {}
    ours = (c for c in nb.cells if "generated" not in c.metadata.get("tags", ()))
    for cell in (cell for cell in ours if cell.cell_type == "code"):
        for node in ast.parse(cell.source).body:
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                found[node.targets[0].id] = node
            elif isinstance(node, ast.FunctionDef | ast.ClassDef):
                found[node.name] = node
    return found


def statements(node, here=None):
    """Return the statements of a function or class without docstrings, annotations and seeds."""

    class Plain(ast.NodeTransformer):
        def visit_Name(self, name):
            return ast.Name((here or {}).get(name.id, name.id))

        def visit_FunctionDef(self, function):
            for argument in (*function.args.args, *function.args.kwonlyargs):
                argument.annotation = None
            function.returns = None
            return self.visit_ClassDef(function)

        def visit_ClassDef(self, node):
            node.body = [s for s in node.body if not is_left_out(s)]
            return self.generic_visit(node)

    return [ast.unparse(statement) for statement in Plain().visit(node).body]


def is_left_out(statement):
    if not isinstance(statement, ast.Expr):
        return False
    return isinstance(statement.value, ast.Constant) or "manual_seed" in ast.unparse(statement)


def parsed(thing):
    return ast.parse(inspect.getsource(thing)).body[0]


@pytest.mark.parametrize("name", ["gelu_by_hand", "make_step"])
def test_the_experiments_train_what_the_notebook_teaches(taught, name):
    mine = statements(taught[name], {"gpu": "device"})
    assert mine == statements(parsed(getattr(experiments, name)))
    assert sum(map(len, mine)) > 40


def test_the_experiments_have_the_loops_and_the_changes_of_the_notebook(taught):
    names = {}
    for name in ("usual", "smallest", "changes"):
        exec(ast.unparse(taught[name]), names)
    names["usual"] |= {"half": False, "pieces": 1, "times": 1}
    exec(ast.unparse(taught["smallest"]), names)

    def sort(settings):
        return sorted(map(repr, (sorted(s.items()) for s in settings)))

    assert sort(names["smallest"].values()) == sort(experiments.LOOPS.values())
    assert [{}, *names["changes"].values()] == list(experiments.CHANGES.values())


@pytest.mark.parametrize("letter", LETTERS)
def test_a_stub_is_the_faulty_loop_with_one_line_more(taught, letter):
    stub, loop = taught[f"mend_{letter}"], parsed(detective.CASES[letter].loop)
    assert ast.unparse(stub.args) == ast.unparse(loop.args)
    assert statements(stub) == ["return todo()", *statements(loop)]


def test_no_later_cell_takes_a_name_that_an_earlier_ones_functions_read():
    """Then a cell can be run again after those below it: its functions see what they saw before."""
    bound, read = {}, []
    cells = nbformat.read(NOTEBOOKS / "08_profiling_and_speed.ipynb", 4).cells
    for number, cell in enumerate(c for c in cells if c.cell_type == "code"):
        tree = ast.parse("" if "%pip" in cell.source else cell.source)
        for node in _outside_functions(tree):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                bound.setdefault(node.id, set()).add(number)
        functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
        read += [(number, name) for f in functions for name in _read_from_outside(f)]
        works = [s for s in tree.body if isinstance(s, ast.Assign) and "works" in ast.unparse(s)]
        nodes = [node for statement in works for node in ast.walk(statement)]
        lambdas = [node for node in nodes if isinstance(node, ast.Lambda)]
        assert not any(map(_read_from_outside, lambdas))
    assert {"net", "optimizer"} <= {name for _, name in read}
    assert not {name for number, name in read if max(bound.get(name, {number})) > number}


def _outside_functions(node):
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.FunctionDef | ast.ClassDef | ast.Lambda | ast.ListComp):
            yield child
            yield from _outside_functions(child)


def _read_from_outside(function):
    names = [node for node in ast.walk(function) if isinstance(node, ast.Name)]
    own = {node.id for node in names if isinstance(node.ctx, ast.Store)}
    own |= {node.arg for node in ast.walk(function) if isinstance(node, ast.arg)}
    own |= {node.name for node in ast.walk(function) if isinstance(node, ast.FunctionDef)}
    return {node.id for node in names if isinstance(node.ctx, ast.Load)} - own - set(dir(builtins))


# --- five loops, five regimes


@pytest.fixture
def then_the_t4_again(sim):
    yield
    simgpu.enable("T4")


@pytest.mark.slow
@pytest.mark.parametrize("card", profiles.names())
def test_the_five_loops_have_five_regimes_on_every_card(then_the_t4_again, card):
    found = loops_by_card.loops_on(card).values()
    five = ["launch", "compute", "loader", "memory", "synchronisation"]
    assert [called for _, called, _ in found] == five
    # A batch that fits no memory, or a share at the edge of the rule, would not last on a real card.
    assert max(batch for batch, _, _ in found) <= 16384
    assert max(of.busy for _, called, of in found if called == "synchronisation") < 0.72


def test_a_fast_card_needs_larger_batches_than_a_t4(then_the_t4_again):
    device = simgpu.enable("H100")
    step = experiments.make_step(device, **experiments.LOOPS["compute"])
    assert regime(profiling.facts(step, device, calls=2, values=False)) == "launch"


def test_a_batch_that_would_run_out_of_memory_is_not_taken(then_the_t4_again):
    """The fast card needs a larger batch of loop 4, and has no room for four times that."""
    device = simgpu.enable("H100", memory="800 MB")
    step_of = partial(experiments.make_step, device)
    fit = sizes.fitted(experiments.LOOPS, step_of, device)
    assert fit["memory"]["batch"] == experiments.LOOPS["memory"]["batch"]
    assert fit["synchronisation"]["batch"] > experiments.LOOPS["synchronisation"]["batch"]
    for how in fit.values():  # the lesson's largest change
        traces.trace(step_of(**{**how, "times": 4}), device, values=False)


def test_a_t4_keeps_the_batches_under_names_of_any_language(sim):
    loops = {f"循环 {i}": how for i, how in enumerate(experiments.LOOPS.values(), 1)}
    assert sizes.fitted(loops, partial(experiments.make_step, sim), sim) == loops


def test_a_cpu_keeps_the_batches_as_they_are():
    loops = {f"loop {i}": how for i, how in enumerate(experiments.LOOPS.values(), 1)}
    assert sizes.fitted(loops, lambda **how: 1 / 0, torch.device("cpu")) == loops


# --- what the compiler made


def test_the_graphs_of_a_compiled_function_are_counted_anew_each_time():
    double = torch.compile(lambda x: x.relu() * 2, backend=graphs.count)
    for _ in range(2):
        assert graphs.captured(double, torch.ones(4), torch.ones(4)) == [2]
    asks = torch.compile(lambda x: x * 2 if x.sum().item() > 0 else x, backend=graphs.count)
    assert len(graphs.captured(asks, torch.ones(4))) == 2


# --- the facts


def test_the_hosts_work_between_two_marks_counts_once_the_queue_is_dry(sim):
    """The praise of the first exercise says so."""
    a, one = torch.ones(1024, 1024).to(sim), torch.ones(1).to(sim)

    def between(products, busy):
        start, end = (torch.sim.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(products):
            a @ a
        simgpu.host_work(busy)
        one.add_(1)
        end.record()
        end.synchronize()
        return start.elapsed_time(end) / 1000

    assert between(4, 1e-3) == pytest.approx(between(4, 0.0), rel=1e-6)
    assert between(0, 1e-3) == pytest.approx(between(0, 0.0) + 1e-3, rel=0.02)


def test_recorded_rows_are_named_by_what_a_parameter_says():
    named = {m.label for m in evidence.recorded("gelu")}
    assert {"gelu by hand", "gelu compiled", "gelu built in"} <= named
    assert "matmul size 32" in {m.label for m in evidence.recorded("matmul")}


@pytest.mark.parametrize("tool", ["CUDA graphs", "cuDNN"])
def test_one_sentence_says_which_tool_a_device_lacks(monkeypatch, tool):
    for name in ("cpu", "mps", "xpu:1"):
        said = profiling.lacks(name, tool)
        assert said.startswith(f"{name} has no {tool}") and said.count(".") == 1
    monkeypatch.setattr(torch.backends.cudnn, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "make_graphed_callables", lambda: None, raising=False)
    assert profiling.lacks("cuda:0", tool) == ""
    monkeypatch.setattr(torch.backends.cudnn, "is_available", lambda: False)
    monkeypatch.delattr(torch.cuda, "make_graphed_callables")
    assert profiling.lacks("cuda:0", tool)


def test_the_facts_of_a_trace_by_hand(sim):
    spans = [
        Span("host", "load a batch", 0.0, 2.0, "work"),
        Span("host", "launch", 2.0, 3.0, "launch"),
        Span("sim:0 compute", "mm", 3.0, 6.0, "kernel"),
        Span("host", "synchronize", 3.0, 6.0, "wait"),
        Span("sim:0 host to device", "copy", 6.0, 8.0, "copy"),
        Span("host", "carry the bytes", 6.0, 8.0, "copy"),
        Span("sim:0 compute", "add", 9.0, 10.0, "kernel"),
    ]
    counted = profiling.Counted(sim)
    counted.flops["fp32"] = 1.0 * profiling.best_flops(sim)
    counted.bytes = 0.5 * profiling.best_bytes(sim)
    found = profiling.facts_of(Trace(spans, "modelled"), 2, counted)
    assert found == Facts(
        seconds=5.0,
        busy=pytest.approx(0.4),
        loading=pytest.approx(0.4),
        waiting=pytest.approx(0.3),
        flop_share=pytest.approx(0.25),
        byte_share=pytest.approx(0.125),
        kernels=1.0,
        kernel_seconds=pytest.approx(2.0),
    )
    one = profiling.facts_of(Trace(spans, "modelled"), 2, counted, calls_counted=1)
    assert one.flop_share == pytest.approx(0.5)


@pytest.mark.parametrize("n", [512, 1024, 2048, 4096])
def test_no_product_is_faster_than_the_best_rate_not_a_short_one_on_a_cool_card(sim, n):
    a = torch.ones(n, n, device=sim)
    with memory.NoData():
        assert 0.7 < profiling.facts(lambda: a @ a, sim).flop_share < 1.0001


def test_the_facts_of_work_on_the_simulated_device(sim):
    a = torch.ones(1024, 1024).to(sim)
    products = profiling.facts(lambda: a @ a, sim, calls=3)
    assert products.kernels == 1
    assert products.busy > 0.75 and products.flop_share > 0.8 > products.byte_share
    small = torch.ones(4).to(sim)
    tiny = profiling.facts(lambda: small + 1, sim, calls=5)
    assert regime(tiny) == "launch"
    large = torch.ones(2**20).to(sim)
    reading = profiling.facts(lambda: (large + 1).sum().item(), sim, calls=5)
    assert regime(reading) == "synchronisation"
    assert "computes" in str(reading)


def test_the_facts_of_work_on_the_cpu():
    a = torch.ones(400, 400)
    found = profiling.facts(lambda: a @ a, torch.device("cpu"), calls=3)
    assert found.kernels == 1
    assert 0.3 < found.busy <= 1.0
    assert found.waiting == found.loading == 0
    assert found.flop_share > found.byte_share > 0


def test_flops_are_counted_by_the_unit_that_computes_them(sim):
    a, h = torch.ones(8, 8).to(sim), torch.ones(8, 8, dtype=torch.float16).to(sim)
    with profiling.Counted(sim) as counted:
        a @ a
        h @ h
        torch.ones(8, 8) @ torch.ones(8, 8)
    assert counted.flops["fp32"] == 2 * 8**3
    assert counted.flops["fp16"] == 2 * 8**3
    # One factor, which is read once, and the product.
    assert counted.bytes == 2 * 64 * 4 + 2 * 64 * 2
