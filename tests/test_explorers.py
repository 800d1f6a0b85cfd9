"""Figures to play with: each position is computed, each control changes the picture, and each form works."""

import itertools
import json
import re

import matplotlib.pyplot as plt
import pytest
import torch
from support import python

from course_lessons.lesson02 import explorers as lesson02
from course_lessons.lesson05 import explorers as lesson05
from course_lessons.lesson06 import explorers as lesson06
from course_lessons.lesson07 import explorers as lesson07
from course_lessons.lesson11 import explorers as lesson11
from course_lessons.shared import explorer, memory, roofline
from course_lessons.shared.explorer import Explorer, box, slider

pytestmark = pytest.mark.usefixtures("simulated")

GRADIENTS = torch.logspace(-9, -3, 1000)
CALLS = {
    "loss scale": lambda: lesson05.loss_scale(GRADIENTS),
    "overlap": lesson02.overlap,
    "buckets": lesson06.buckets,
    "sharding": lesson11.sharding,
    "step of FSDP": lesson11.step,
    "allocator": lesson07.allocator,
    "mountain": lambda: lesson07.mountain(blocks=4),
    "roofline": roofline.explore,
}


@pytest.fixture
def made(monkeypatch):
    """Return a function that returns the explorer which a call would show."""

    def of(call):
        found = []
        with monkeypatch.context() as patch:
            patch.setattr(Explorer, "show", lambda self: found.append(self))
            call()
        return found[0]

    return of


def tiny(n=3, **more):
    def draw(size, thick):
        fig, ax = plt.subplots(figsize=(1, 1))
        ax.plot([0, size], linewidth=3 if thick else 1)
        return fig, f"a line up to {size}{', thick' * thick}"

    controls = {"size": slider("size <n>", range(n)), "thick": box("thick")}
    more = {"guesses": ("short", "long & thin"), "answer": "long & thin"} | more
    return Explorer("How long?", controls=controls, draw=draw, found="It grows.", telling={"size": 2}, **more)


@pytest.mark.slow
@pytest.mark.parametrize("name", CALLS)
def test_each_control_changes_the_picture_and_its_words(name, made):
    shown = made(CALLS[name])
    assert len(set(shown.guesses)) == len(shown.guesses) >= 3
    controls = list(shown.controls.values())
    starts = [shown.shown, [0] * len(controls), [len(c.options) - 1 for c in controls]]
    for place, control in enumerate(controls):
        positions = range(len(control.options))
        said = [{words(shown, start, place, i) for i in positions} for start in starts]
        assert max(map(len, said)) > 1, f"{control.label} changes nothing"


def words(shown, start, place, position):
    figure, alt = shown.at([*start[:place], position, *start[place + 1 :]])
    plt.close(figure)
    assert "nan" not in alt
    return alt


@pytest.mark.parametrize("name", CALLS)
def test_its_answer_can_be_reached_and_is_not_where_it_starts(name, made):
    shown = made(CALLS[name])
    assert shown.answer in shown.guesses
    parts = {shown.part(positions) for positions in shown.positions()} - {""}
    assert len(parts) >= shown.parts
    assert not shown.part([control.start for control in shown.controls.values()])


@pytest.mark.slow
def test_in_another_language_no_word_of_a_picture_is_left(monkeypatch):
    """Those that are keys in the program too, such as a legend's, are put into it as it is drawn."""
    monkeypatch.setenv("COURSE_LANGUAGE", "zh")
    out = python(
        """
        import sys, warnings
        sys.path[:0] = ["tests", "simgpu/tests"]
        warnings.filterwarnings("ignore", "Glyph")
        import course_utils
        from course_language import _ as gettext
        from course_lessons.shared.explorer import Explorer, _png
        from matplotlib.text import Text
        from test_explorers import CALLS

        def look(self):
            figure, _ = self.at(self.shown)
            _png(figure)
            controls = self.controls.values()
            words = [t.get_text() for t in figure.findobj(Text)] + [c.label for c in controls]
            print(*(word for word in words if gettext(word) != word), end="")

        Explorer.show = look
        for call in CALLS.values():
            call()
        """
    )
    assert out == ""


def test_who_waits_for_whom_is_as_the_lesson_says():
    seconds = {at: lesson02.loop(*at).seconds for at in itertools.product((False, True), repeat=4)}
    slow, pinned = (False, False, True, False), (True, False, True, False)
    stream, others = (False, False, True, True), [(False, True, True, False), (False,) * 4]
    assert seconds[pinned] < min(seconds[at] for at in [stream, *others])
    assert seconds[stream] >= seconds[slow]
    assert min(seconds, key=seconds.get) == (True, True, False, True)


@pytest.mark.parametrize("again", [(), (0,), (3,), (0, 1, 2), (0, 1, 2, 3)])
def test_the_mountain_is_as_high_as_the_meter_says(again):
    from torch import nn
    from torch.utils.checkpoint import checkpoint

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            wide = nn.Linear(256, 1024), nn.GELU(), nn.Linear(1024, 256)
            self.inside = nn.Sequential(nn.LayerNorm(256), *wide)

        def forward(self, x):
            return x + self.inside(x)

    with memory.temporary_device("400 MiB") as device:
        module = torch.get_device_module(device)
        blocks = nn.ModuleList(Block() for _ in range(4)).to(device)
        x = torch.randn(lesson07.ROWS, 256, device=device, requires_grad=True)
        before = module.memory_allocated(device)
        for n, block in enumerate(blocks):
            x = checkpoint(block, x, use_reentrant=False) if n in again else block(x)
        top = module.memory_allocated(device) - before
        del x
    steps = lesson07.mountain_heights(tuple(n in again for n in range(4)))
    counted = [height for name, height in steps if name == "forward"][-1]
    # LayerNorm keeps a mean and a spread for each row.
    assert top == pytest.approx(counted, rel=0.02)


def test_the_last_block_computed_again_saves_nothing():
    def peak(*again):
        return max(height for _, height in lesson07.mountain_heights(again))

    nothing = peak(False, False, False)
    assert peak(False, False, True) == nothing
    assert peak(True, False, False) == peak(False, True, False) < nothing


def test_full_tensors_of_a_segment_each_leave_gaps_that_go_back():
    def given(size, emptied):
        return lesson07.after(3, size * lesson07.MIB, emptied)[1] == "24 MiB: given"

    assert given(12, emptied=False)
    assert not given(4, emptied=True)


def test_where_nobody_can_move_it_is_one_picture(monkeypatch, capsys):
    monkeypatch.delenv("COURSE_WIDGETS", raising=False)
    monkeypatch.delenv("JPY_SESSION_NAME", raising=False)
    tiny().show()
    out = capsys.readouterr().out.splitlines()
    at = "size <n>: 2 · thick: no"
    assert out == ["How long?", "short · long & thin", "a line up to 2", at, "It grows."]


def test_the_still_picture_keeps_its_answer_folded(monkeypatch):
    shown = []
    monkeypatch.setattr(explorer, "show", lambda bundle: shown.append(bundle.html))
    explorer.show_still(tiny())
    asked, _, found = shown
    assert "How long?" in asked and "It grows." not in asked
    assert found.startswith("<details><summary>") and "<details open" not in found


@pytest.mark.parametrize(
    ("env", "kernel", "want"),
    [
        ({}, True, "still"),
        ({"JPY_SESSION_NAME": "03.ipynb"}, True, "live"),
        ({"JPY_SESSION_NAME": "03.ipynb"}, False, "still"),
        ({"KAGGLE_KERNEL_RUN_TYPE": "Interactive"}, True, "live"),
        ({"KAGGLE_KERNEL_RUN_TYPE": "Batch"}, True, "still"),
        ({"COLAB_RELEASE_TAG": "release"}, True, "live"),
        ({"COURSE_WIDGETS": "frames"}, False, "frames"),
    ],
)
def test_it_is_live_where_a_person_sits(env, kernel, want, monkeypatch):
    known = "COURSE_WIDGETS JPY_SESSION_NAME KAGGLE_KERNEL_RUN_TYPE VSCODE_PID COLAB_RELEASE_TAG"
    for name in known.split():
        monkeypatch.delenv(name, raising=False)
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(explorer, "in_notebook", lambda: kernel)
    assert explorer.form() == want


def test_a_guess_comes_first_and_then_things_move():
    live = explorer.Live(tiny())
    size, thick = live.movers
    assert size.disabled and thick.disabled
    assert 'alt="a line up to 0"' in live.picture.value
    live.guess.value = "long & thin"
    assert not size.disabled
    assert "You said: long &amp; thin." in live.note.value and "It grows." not in live.note.value
    size.index = 2
    thick.value = True
    assert 'alt="a line up to 2, thick"' in live.picture.value
    assert "<b>Right.</b> It grows." in live.note.value


def test_the_answer_comes_where_the_question_is_answered_and_says_who_was_right():
    live = explorer.Live(tiny(reached=lambda size, thick: size == 2 and not thick))
    size, thick = live.movers
    live.guess.value = "long & thin"
    thick.value = True
    size.index = 2
    assert "Keep moving." in live.note.value and "It grows." not in live.note.value
    live.guess.value = "short"
    thick.value = False
    assert "You said: short. <b>Not quite.</b> It grows." in live.note.value
    assert live.guess.disabled, "the answer is known"
    size.index = 0
    assert "Not quite." in live.note.value, "it stays"


def test_an_answer_can_take_several_pictures():
    live = explorer.Live(tiny(reached=lambda size, thick: size, parts=2))
    size, _ = live.movers
    live.guess.value = "long & thin"
    for index, says in ((1, "1 of 2"), (0, "1 of 2"), (1, "1 of 2"), (2, "<b>Right.</b> It grows.")):
        size.index = index
        assert says in live.note.value


def test_without_guesses_it_moves_at_once():
    live = explorer.Live(tiny(guesses=(), answer=""))
    size, _ = live.movers
    assert not size.disabled and live.guess not in live.all.children
    size.index = 1
    assert live.note.value == "It grows."
    assert "disabled" not in explorer.page(tiny(guesses=(), answer="")).split("<script>")[0]


def test_an_answer_that_nobody_can_choose_is_refused():
    for answer in ("", "thin"):
        with pytest.raises(ValueError, match="none of the guesses"):
            tiny(answer=answer)


def test_a_page_holds_every_picture_and_asks_nobody():
    page = explorer.page(tiny(reached=lambda size, thick: size))
    frames = json.loads(re.search(r"frames = (\{.*?\});", page)[1])
    assert set(frames) == {f"{a},{b}" for a in range(3) for b in range(2)}
    assert frames["2,1"][1] == "a line up to 2, thick"
    assert len({source for source, _ in frames.values()}) > 3
    assert json.loads(re.search(r"parts = (\{.*?\}),", page)[1]) == {
        f"{a},{b}": str(a) for a in (1, 2) for b in (0, 1)
    }
    assert not re.search(r"https?:|src=\"/", page)
    assert "size &lt;n&gt;" in page


def test_more_pictures_than_a_page_holds_are_refused():
    with pytest.raises(ValueError, match="200 pictures, more than 128"):
        tiny(100)
