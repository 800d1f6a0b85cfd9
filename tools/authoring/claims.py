"""The handbook's ``claims.md``, ``claims_numbers.md`` and their chart, made from claims and records."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

from course_language import _
from course_lessons.shared.claims import CLAIMS, Claim, weigh
from course_lessons.shared.claims.weighing import describe, format_range, grouped, kind_label
from course_utils.evidence import KIND_BY_PREFIX
from course_utils.files import replacing
from tools.authoring.cells import row
from tools.authoring.pages import Generated, digest_mark

PAGE, NUMBERS = "handbook/claims.md", "handbook/claims_numbers.md"
CHART = "images/claims.svg"
RATIOS, RATES = ("×", "memory"), ("images/s",)
"""The units of the chart's upper and lower half."""

INTRODUCTION = _("""\
# What is claimed, and how far it is true

Is training 10 to 100 times as fast on a GPU? That's what one of the five Chinese documents behind this \
course says. Four of them claim
in numbers what a GPU gains. This page compares each of these claims with what was measured.

Two kinds of numbers count. *Recorded* ones were measured with this course on the machine that is named. \
*Published* ones come from
the source that is linked. The simulated GPU's numbers are *modelled*, and they decide nothing. The \
verdict says how many of the numbers
that count lie in the claimed range or near it:

- **Holds**: all of them do.
- **Depends**: some of them do.
- **Not seen**: none of them does.
- **Open**: there are no such numbers yet.

Click a claim to see where it stands, what must be so for it to be true, and \
[each number](claims_numbers.md) about it.
""")


def page(claims: Sequence[Claim] = CLAIMS) -> str:
    """Return the page with each claim's verdict (``handbook/claims.md``), as Markdown."""
    parts = [INTRODUCTION]
    for group, alike in groupby(claims, lambda claim: claim.group):
        head = _("Claim"), _("Verdict"), _("What was found")
        parts += [f"## {group}\n", row(*head), "|---|---|---|", *map(_row, alike), ""]
    return "\n".join([*parts, f"![{alt(claims)}](../{CHART})\n"])


def numbers(claims: Sequence[Claim] = CLAIMS) -> str:
    """Return the page with each claim's numbers (``handbook/claims_numbers.md``), as Markdown."""
    parts = [Path(__file__).with_name("claims_numbers.md").read_text(encoding="utf-8")]
    for group, alike in groupby(claims, lambda claim: claim.group):
        parts += [f"## {group}\n", *map(_block, alike)]
    return "\n".join(parts)


def alt(claims: Sequence[Claim]) -> str:
    """Return the chart's alternative text."""
    return _(
        "One row a claim: the claimed range as a bar, and the recorded, modelled and published numbers as "
        "dots, on a logarithmic axis; {n_claims} claims, which the table above gives in words."
    ).format(n_claims=len(claims))


def _row(claim: Claim) -> str:
    """Return a claim's table row; an open claim's row has the range of its modelled numbers too."""
    verdict, sentence = weigh(claim), claim.sentence
    modelled = [f.value for f in claim.points if f.kind == "modelled" and f.weighed]
    if verdict == "Open" and modelled:
        ends = format_range(min(modelled), max(modelled), claim.unit)
        sentence = f"{sentence}<br>" + _("Modelled: {ends}.").format(ends=ends)
    return row(f"[{claim.text}](claims_numbers.md#claim-{claim.id})", f"**{_(verdict)}**", sentence)


def _block(claim: Claim) -> str:
    """Return a claim's section on the page of numbers: verdict, quotation, requirements, numbers."""
    ask = _("Not measured yet: needs a GPU.") if claim.lacks_gpu else _("To measure it yourself:")
    lines = [
        f'<a id="claim-{claim.id}"></a>',
        "",
        f"### {claim.text}",
        "",
        f"**{weigh(claim)}.** {claim.sentence}",
        "",
        _("- *Claimed* in {document}, “{section}”: {quote}").format(
            document=claim.document, section=claim.section, quote=claim.quote.replace("|", " · ")
        ),
        _("- *To be true it needs:* {needs}").format(needs=claim.needs),
        *([f"- *{ask}* `{claim.command}`"] if claim.experiments else []),
        *(["", _numbers(claim)] if claim.points else []),
    ]
    return "\n".join(lines) + "\n"


def _numbers(claim: Claim) -> str:
    """Return the table of a claim's data points, as Markdown."""
    rows = [_("| Number | Kind | What | Where | Source, date |"), "|---:|---|---|---|---|"]
    for group in grouped(claim.points):
        f = group[0]
        number, what = describe(group, claim.unit)
        ends = format_range(f.low, f.high, claim.unit)
        if len(group) == 1 and ends != number:
            number += f" ({ends})"
        source = _link(f.source) if f.source else f.date
        rows.append(f"| {number} | {kind_label(f)} | {what} | {f.where} | {source} |")
    return "\n".join(rows)


def _link(sources: str) -> str:
    """Return sources such as ``"a title, 2024, https://…; another title"`` as Markdown links."""
    parts = (source.rpartition(", ") for source in sources.split("; "))
    return "; ".join(
        f"[{title}]({end})" if end.startswith("http") else title + comma + end for title, comma, end in parts
    )


# --- the chart ----------------------------------------------------------------------------------


def digest(claims: Sequence[Claim]) -> str:
    """Return the mark stored in the chart's SVG file that changes with the claims and numbers shown."""
    rows = [(c.short, c.claimed, [(f"{f.value:.4g}", f.kind, f.weighed) for f in c.points]) for c in claims]
    content = json.dumps(rows, ensure_ascii=False)
    return digest_mark(content.encode())


def draw(path: Path, claims: Sequence[Claim] = CLAIMS) -> None:
    """Draw the claims' chart with matplotlib and write it to an SVG file."""
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
        _rows(axes[0], upper, _("times as fast, or times less memory"))
        _rows(axes[1], lower, _("images a second"))
        _legend(fig)
        about = _("{alt} This file {digest}.").format(alt=alt(claims), digest=digest(claims))
        fig.savefig(new, format="svg", metadata={"Date": None, "Description": about})
        plt.close(fig)


OFFSETS = {"recorded": -0.22, "modelled": 0.0, "published": 0.22}
BAR = "#f2c38f"


def _rows(ax, claims: Sequence[Claim], xlabel: str) -> None:
    """Draw one row for each claim into an axes: the claimed range as a bar, the data points as markers."""
    from course_utils.plots import LOOKS, log_ticks

    every = [f.value for claim in claims for f in claim.points]
    ends = [end for claim in claims for end in (claim.low, claim.high) if end]
    left, right = min(every + ends) / 1.6, max(every + ends) * 1.6
    ax.set(xscale="log", xlim=(left, right), ylim=(len(claims) - 0.4, -0.6), xlabel=xlabel)
    for line, claim in enumerate(claims):
        low, high = (claim.low or left) / 1.03, (claim.high or right) * 1.03
        ax.barh(line, high - low, left=low, height=0.8, color=BAR, zorder=1)
        for f in claim.points:
            spread = [[max(0, f.value - f.low)], [max(0, f.high - f.value)]]
            y, alpha = line + OFFSETS[f.kind], 1 if f.weighed else 0.35
            look = {**LOOKS[f.kind], "alpha": alpha, "markersize": 5, "elinewidth": 1}
            ax.errorbar(f.value, y, xerr=spread, zorder=3, **look)
    names = [f"{claim.short}: {claim.claimed}" for claim in claims]
    ax.set_yticks(range(len(claims)), names)
    ax.tick_params(axis="y", length=0, labelsize=9)
    log_ticks(ax.xaxis)
    if xlabel.startswith("times"):
        ax.axvline(1, color="#666666", linewidth=1, zorder=2)


def _legend(fig) -> None:
    """Add the legend of bars and markers above the figure's axes."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    from course_utils.plots import LOOKS

    handles = [Patch(color=BAR, label=_("claimed"))]
    handles += [Line2D([], [], linestyle="", label=kind, **LOOKS[kind]) for kind in KIND_BY_PREFIX.values()]
    handles.append(
        Line2D([], [], linestyle="", label=_("pale: related, not weighed"), marker="o", color="#bbbbbb")
    )
    fig.legend(handles=handles, loc="outside upper center", ncols=5)


GENERATED = (
    Generated(PAGE, page),
    Generated(NUMBERS, numbers),
    Generated(CHART, lambda: digest(CLAIMS), draw),
)
