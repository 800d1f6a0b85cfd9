"""The handbook's ``claims.md`` and ``claims_numbers.md`` and their chart: made from the claims and the records alone."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

from course_language import say, word
from course_lessons.shared.claims import CLAIMS, Claim, weigh
from course_lessons.shared.claims.weighing import between, gathered, kind_of, said_of
from course_utils.evidence import KIND_BY_PREFIX
from course_utils.files import replacing
from tools.authoring.cells import row
from tools.authoring.pages import WholePage, shows

PAGE, NUMBERS = "handbook/claims.md", "handbook/claims_numbers.md"
CHART = "images/claims.svg"
RATIOS, RATES = ("×", "memory"), ("images/s",)
"""The units of the chart's upper and lower part."""

INTRODUCTION = """\
# What is claimed, and how far it is true

Five documents, in Chinese, set the subject of this course; four of them say in numbers what a GPU gains. Each such claim has a row here. Its link
leads to where it stands, what it would need, and [each number](claims_numbers.md) that speaks to it.

**Holds**: all recorded and published numbers lie in the claimed range or near it. **Depends**: some do. **Not seen**: none does. **Open**:
there is none. *Recorded* numbers were measured with this course on the machine that is named, *published* ones printed by the source that is
linked; *modelled* ones are the simulated GPU's and decide nothing.
"""
BEHIND = """\
# The numbers behind each claim

[What is claimed, and how far it is true](claims.md) has the verdicts in a table, and says what they mean. *Related* numbers, of another task or a CPU,
are not weighed. `notebooks --fix` writes both pages from [the claims](../course_lessons/shared/claims/claims.yml) and
[the records](../course_lessons/recorded/); no number found is typed by hand.
"""


def page(claims: Sequence[Claim] = CLAIMS) -> str:
    """Return the page of the verdicts, as Markdown."""
    parts = [INTRODUCTION]
    for group, alike in groupby(claims, lambda claim: claim.group):
        head = word("Claim"), word("Verdict"), word("What was found")
        parts += [f"## {group}\n", row(*head), "|---|---|---|", *map(_row, alike), ""]
    return "\n".join([*parts, f"![{alt(claims)}](../{CHART})\n"])


def numbers(claims: Sequence[Claim] = CLAIMS) -> str:
    """Return the page of the numbers, as Markdown."""
    parts = [BEHIND]
    for group, alike in groupby(claims, lambda claim: claim.group):
        parts += [f"## {group}\n", *map(_block, alike)]
    return "\n".join(parts)


def alt(claims: Sequence[Claim]) -> str:
    """Say in a sentence or two what the chart shows."""
    return (
        "One row a claim: the claimed range as a bar, and the recorded, modelled and published numbers as dots, on "
        f"a logarithmic axis; {len(claims)} claims, which the table above gives in words."
    )


def _row(claim: Claim) -> str:
    """Return a claim's row; where nothing decides it, with what is modelled."""
    verdict, said = weigh(claim), claim.sentence
    modelled = [f.value for f in claim.found if f.kind == "modelled" and f.weighed]
    if verdict == "Open" and modelled:
        ends = between(min(modelled), max(modelled), claim.unit)
        said = f"{said}<br>" + f"Modelled: {ends}."
    return row(f"[{claim.text}](claims_numbers.md#claim-{claim.id})", f"**{say(verdict)}**", said)


def _block(claim: Claim) -> str:
    ask = "Not measured yet: needs a GPU." if claim.lacks_gpu else "To measure it yourself:"
    lines = [
        f'<a id="claim-{claim.id}"></a>',
        "",
        f"### {claim.text}",
        "",
        f"**{weigh(claim)}.** {claim.sentence}",
        "",
        f"- *Claimed* in {claim.document}, “{claim.section}”: {claim.quote.replace('|', ' · ')}",
        f"- *To be true it needs:* {claim.needs}",
        *([f"- *{ask}* `{claim.command}`"] if claim.experiments else []),
        *(["", _numbers(claim)] if claim.found else []),
    ]
    return "\n".join(lines) + "\n"


def _numbers(claim: Claim) -> str:
    rows = ["| Number | Kind | What | Where | Source, date |", "|---:|---|---|---|---|"]
    for group in gathered(claim.found):
        f = group[0]
        number, what = said_of(group, claim.unit)
        ends = between(f.low, f.high, claim.unit)
        if len(group) == 1 and ends != number:
            number += f" ({ends})"
        source = _link(f.source) if f.source else f.date
        rows.append(f"| {number} | {kind_of(f)} | {what} | {f.where} | {source} |")
    return "\n".join(rows)


def _link(sources: str) -> str:
    """Turn ``"a title, 2024, https://…; another title"`` into links."""
    parts = (source.rpartition(", ") for source in sources.split("; "))
    return "; ".join(
        f"[{title}]({end})" if end.startswith("http") else title + comma + end
        for title, comma, end in parts
    )


# --- the chart ----------------------------------------------------------------------------------


def digest(claims: Sequence[Claim]) -> str:
    """Return what stands in the chart's file to tell whether it shows these claims and records."""
    rows = [
        (c.short, c.claimed, [(f"{f.value:.4g}", f.kind, f.weighed) for f in c.found])
        for c in claims
    ]
    content = json.dumps(rows, ensure_ascii=False)
    return shows(content.encode())


def draw(path: Path, claims: Sequence[Claim] = CLAIMS) -> None:
    """Draw the chart into an SVG file."""
    import matplotlib.pyplot as plt

    from course_utils.plots import use_style

    upper = [claim for claim in claims if claim.unit in RATIOS]
    lower = [claim for claim in claims if claim.unit in RATES]
    with replacing(path) as new, plt.rc_context({"svg.hashsalt": "claims", "svg.fonttype": "path"}):
        use_style()
        fig, axes = plt.subplots(
            2,
            figsize=(9.6, 0.33 * len([*upper, *lower]) + 2.2),
            height_ratios=[len(upper), len(lower) + 0.5],
            layout="constrained",
        )
        _rows(axes[0], upper, "times as fast, or times less memory")
        _rows(axes[1], lower, "images a second")
        _legend(fig)
        about = f"{alt(claims)} This file {digest(claims)}."
        fig.savefig(new, format="svg", metadata={"Date": None, "Description": about})
        plt.close(fig)


OFFSETS = {"recorded": -0.22, "modelled": 0.0, "published": 0.22}
BAR = "#f2c38f"


def _rows(ax, claims: Sequence[Claim], xlabel: str) -> None:
    from course_utils.plots import LOOKS, log_ticks

    every = [f.value for claim in claims for f in claim.found]
    ends = [end for claim in claims for end in (claim.low, claim.high) if end]
    left, right = min(every + ends) / 1.6, max(every + ends) * 1.6
    ax.set(xscale="log", xlim=(left, right), ylim=(len(claims) - 0.4, -0.6), xlabel=xlabel)
    for place, claim in enumerate(claims):
        low, high = (claim.low or left) / 1.03, (claim.high or right) * 1.03
        ax.barh(place, high - low, left=low, height=0.8, color=BAR, zorder=1)
        for f in claim.found:
            spread = [[max(0, f.value - f.low)], [max(0, f.high - f.value)]]
            y, pale = place + OFFSETS[f.kind], 1 if f.weighed else 0.35
            look = {**LOOKS[f.kind], "alpha": pale, "markersize": 5, "elinewidth": 1}
            ax.errorbar(f.value, y, xerr=spread, zorder=3, **look)
    names = [f"{claim.short}: {claim.claimed}" for claim in claims]
    ax.set_yticks(range(len(claims)), names)
    ax.tick_params(axis="y", length=0, labelsize=9)
    log_ticks(ax.xaxis)
    if xlabel.startswith("times"):
        ax.axvline(1, color="#666666", linewidth=1, zorder=2)


def _legend(fig) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    from course_utils.plots import LOOKS

    handles = [Patch(color=BAR, label="claimed")]
    handles += [
        Line2D([], [], linestyle="", label=kind, **LOOKS[kind]) for kind in KIND_BY_PREFIX.values()
    ]
    handles.append(
        Line2D(
            [], [], linestyle="", label="pale: related, not weighed", marker="o", color="#bbbbbb"
        )
    )
    fig.legend(handles=handles, loc="outside upper center", ncols=5)


WHOLE = WholePage(
    {PAGE: page, NUMBERS: numbers}, "the claims or the records", CHART, lambda: digest(CLAIMS), draw
)
problems, renew = WHOLE.problems, WHOLE.renew
