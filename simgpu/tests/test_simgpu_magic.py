"""``%%gpu`` in a notebook: a cell runs as it stands and is reported, and the notebook goes on without it."""

import re
import sys
import textwrap

import pytest
import torch
from ipykernel.compiler import XCachingCompiler
from IPython.core.interactiveshell import InteractiveShell
from support import python
from traitlets.config import Config

from simgpu import named

pytestmark = pytest.mark.usefixtures("without_a_real_gpu")

TRAINING = """\
for _ in range(6):
    optimizer.zero_grad()
    loss = model(x).square().mean()
    loss.backward()
    optimizer.step()
    loss.item()
"""


class Notebook:
    """An IPython shell, cell by cell."""

    def __init__(self, capsys):
        self.shell = InteractiveShell.instance(config=Config(HistoryManager={"enabled": False}))
        self.capsys = capsys
        self.names = self.shell.user_ns

    def run(self, cell):
        """Run a cell; return its result, what it printed, and what it wrote to standard error."""
        self.capsys.readouterr()
        result = self.shell.run_cell(textwrap.dedent(cell), store_history=True)
        return result, *(re.sub(r"\x1b\[[\d;]*m", "", text) for text in self.capsys.readouterr())

    def prints(self, cell):
        """Run a cell that has no error; return what it printed."""
        result, out, _ = self.run(cell)
        assert result.success, out
        return out


@pytest.fixture
def notebook(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])  # the shell puts its own there
    notebook = Notebook(capsys)
    notebook.prints("%load_ext simgpu\nimport torch\nfrom torch import nn")
    yield notebook
    named.disable()
    notebook.shell.reset()
    InteractiveShell.clear_instance()


@pytest.fixture
def trained(notebook):
    """Return a notebook in which one cell has made a network on the GPU."""
    notebook.prints("""\
        %%gpu A100
        device = "cuda" if torch.cuda.is_available() else "cpu"
        model = nn.Linear(64, 64).to(device)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        x = torch.randn(32, 64, device=device)
        """)
    return notebook


def test_a_cell_runs_on_the_card_and_is_reported(notebook):
    out = notebook.prints("%%gpu A100\nx = torch.ones(3, device='cuda')\nprint(torch.cuda.get_device_name())")
    assert out.startswith("Simulated NVIDIA A100")
    assert "Report for the simulated NVIDIA A100" in out and "It fits" in out
    assert notebook.names["x"].sum().item() == 3


def test_between_two_cells_tensors_say_sim_and_in_the_next_cuda_again(trained):
    assert trained.prints("print(x.device, model.weight.device, torch.cuda.is_available())") == (
        "sim:0 sim:0 False\n"
    )
    before = trained.names["model"].weight.clone()
    assert "cuda:0 True" in trained.prints(
        "%%gpu A100\n" + TRAINING + "print(x.device, model.weight.is_cuda)"
    )
    assert not torch.equal(before, trained.names["model"].weight)


@pytest.mark.parametrize("compiler", [None, XCachingCompiler], ids=["IPython", "ipykernel"])
def test_the_report_names_the_lines_of_the_cell(trained, compiler):
    if compiler:
        trained.shell.compile = compiler()
    for _ in range(2):  # the same cell twice is two cells
        number = trained.shell.execution_count
        out = trained.prints("%%gpu A100\n# the training\n" + TRAINING)
        assert f"1. In[{number}]:8  loss.item()\n" in out
        assert f"In[{number}]:8 waits" in out


def test_lines_are_those_of_the_traceback(notebook):
    number = notebook.shell.execution_count
    result, out, _ = notebook.run("""\
        %%gpu --memory 8MB
        def big():
            return torch.ones(2**22, device="cuda")

        big()
        """)
    assert isinstance(result.error_in_exec, torch.OutOfMemoryError)  # so "run all" stops here
    traceback, _, report = out.partition("Report for the simulated")
    place = rf"(Cell In\[{number}\], line 3,|<ipython-input-{number}-\w+>) in big\(\)"  # IPython 8, 7
    assert re.search(place, traceback) and "CUDA out of memory" in traceback
    assert f"It ran out of memory at In[{number}]:3: return torch.ones" in report
    assert notebook.prints("print(torch.cuda.is_available())") == "False\n"


def test_the_last_value_is_the_cells_result(notebook):
    number = notebook.shell.execution_count
    out = notebook.prints("%%gpu --no-report\ntorch.ones(2, device='cuda')")
    assert out.startswith(f"Out[{number}]: tensor([1., 1.], device='cuda:0')")


def test_an_error_of_syntax_has_no_report(notebook):
    result, out, _ = notebook.run("%%gpu\nx = = 1")
    assert isinstance(result.error_before_exec or result.error_in_exec, SyntaxError)
    assert "Report" not in out and not named.enabled()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("A1000", "There is no profile 'A1000'. Choose one of T4"),
        ("--memory lots", "'lots' is no size of memory"),
        ("--compare A100,H10", "There is no profile 'H10'"),
        ("--cards 99", "--cards 99: give a whole number from 1 to 64."),
        ("--cards two", "invalid int value: 'two'; `%gpu?` shows the options."),
        ("--crads 2", "unrecognized arguments: --crads"),
        ("'RTX 4090", "No closing quotation"),
        ("off", "There is no profile 'off'"),
    ],
)
def test_a_mistake_is_one_sentence_and_nothing_runs(notebook, words, sentence):
    result, out, err = notebook.run(f"%%gpu {words}\nprint('ran')")
    assert not result.success and out == ""
    assert sentence in err and len(err.splitlines()) == 1
    assert not named.enabled()


def test_beside_a_real_gpu_it_says_so(notebook, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    for cell in ("%%gpu\nprint('ran')", "%gpu T4"):
        result, out, err = notebook.run(cell)
        assert not result.success and out == ""
        assert "This machine has a GPU, and in this process 'cuda' means that one." in err


def test_tensors_on_a_card_that_would_go_are_named_as_the_cell_names_them(notebook):
    notebook.prints("%%gpu --cards 2 --no-report\ny = torch.ones(3, device='cuda:1')")
    _, _, err = notebook.run("%%gpu\nprint('ran')")
    assert "cuda:1 still holds tensors" in err


def test_the_line_magic_lasts_until_it_is_off(notebook):
    assert "'cuda' means a simulated NVIDIA GeForce RTX 4090" in notebook.prints("%gpu RTX 4090 --cards 2")
    assert notebook.prints("print(torch.ones(2, device='cuda:1').device)") == "cuda:1\n"
    assert notebook.prints("%%gpu --cards 2 --no-report\nprint(torch.cuda.is_available())") == "True\n"
    assert notebook.prints("print(torch.cuda.is_available())") == "True\n"
    assert "sim:0" in notebook.prints("%gpu off")
    assert notebook.prints("print(torch.cuda.is_available())") == "False\n"
    result, _, err = notebook.run("%gpu --dry")
    assert not result.success and "under %%gpu" in err


def test_a_dry_cell_computes_nothing_and_cards_are_compared(notebook):
    out = notebook.prints("%%gpu --dry --compare A100,B200\n(torch.ones(2**33, device='cuda') + 1).sum()")
    assert "64 GiB" in out and "It doesn't fit" in out
    assert "What this cell has made has no values." in out
    rows = [line.split()[:2] for line in out.splitlines() if line.startswith(("A100", "B200"))]
    assert rows == [["A100", "yes"], ["B200", "yes"]]


def test_other_magics_stand_above_or_below(notebook):
    below = notebook.prints("%%gpu --no-report\n%%time\nprint(torch.cuda.is_available())")
    above = notebook.prints("%%time\n%%gpu --no-report\nprint(torch.cuda.is_available())")
    for out in (below, above):
        assert out.startswith("True\n") and "Wall time" in out


def test_its_help_has_the_options_of_the_command(notebook):
    text = notebook.shell.find_cell_magic("gpu").__doc__
    assert all(option in text for option in ("--cards", "--memory", "--dry", "--compare", "--no-report"))


def test_simgpu_itself_does_not_need_ipython():
    assert python("import sys, simgpu; print('IPython' in sys.modules, simgpu.enable())") == "False sim:0\n"
