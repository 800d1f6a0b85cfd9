"""Name the regime."""

from itertools import product

from course_language import _
from course_lessons.shared.profiling import Facts
from course_utils.exercises import Exercise


def regime(facts):
    if facts.busy >= 0.75:
        if max(facts.flop_share, facts.byte_share) < 0.3:
            return "small kernels"
        return "compute" if facts.flop_share >= facts.byte_share else "memory"
    if max(facts.loading, facts.waiting) < 0.2:
        return "launch"
    return "loader" if facts.loading >= facts.waiting else "synchronisation"


DEVICE, HOST = ("compute", "memory", "small kernels"), ("loader", "synchronisation", "launch")


def _make_cases():
    """Return combinations of values as `Facts`, those at a limit or with equal shares last.

    The first wrong one is shown to the learner.
    """
    busy = (0.95, 0.1, 0.5, 1.0, 0.8, 0.7, 0.76, 0.74, 0.75)
    host = ((0.5, 0.1), (0.1, 0.4), (0.0, 0.0), (0.3, 0.5), (0.5, 0.3), (0.22, 0.05), (0.15, 0.15))
    host += ((0.05, 0.19), (0.2, 0.05), (0.05, 0.2), (0.3, 0.3))
    shares = ((0.7, 0.3), (0.2, 0.6), (0.05, 0.02), (0.8, 0.9), (0.9, 0.8), (0.02, 0.2))
    shares += ((0.4, 0.4), (0.3, 0.1), (0.1, 0.3), (0.1, 0.1), (0.3, 0.3))
    order = sorted(
        product(range(len(busy)), range(len(host)), range(len(shares))),
        key=lambda at: (max(at[0] - 4, at[1] - 4, at[2] - 5, 0), at),
    )
    return [
        Facts(1e-3, busy[b], *host[h], *shares[s], kernels=40, kernel_seconds=busy[b] * 2.5e-5)
        for b, h, s in order
    ]


def _diagnose_wrong_name(name, right, case):
    """Return which of the task's rules a wrong name breaks."""
    if (name in DEVICE) != (right in DEVICE):
        return "busy-first" if right in DEVICE else "idle-device"
    if right in ("small kernels", "launch"):
        return "low-shares" if right == "small kernels" else "no-launch"
    if {name, right} == {"compute", "memory"} and case.flop_share != case.byte_share:
        return "larger-share"
    return "wrong-value"


def _check_answer(answer, judge):
    """Check the name for each case."""
    for case in _make_cases():
        name, right = judge.is_a(answer(case), str, _("one of the six names")), regime(case)
        if name not in (*DEVICE, *HOST):
            judge.no(seen=repr(name), expected=", ".join((*HOST, *DEVICE[::-1])))
        if name != right:
            judge.no(
                _diagnose_wrong_name(name, right, case),
                seen=_(
                    "{name} for busy {busy:g}, loading {loading:g}, waiting {waiting:g}, "
                    "FLOP/s {flop_share:g}, bytes/s {byte_share:g}"
                ).format(
                    name=name,
                    busy=case.busy,
                    loading=case.loading,
                    waiting=case.waiting,
                    flop_share=case.flop_share,
                    byte_share=case.byte_share,
                ),
                expected=right,
            )


EXERCISE = Exercise(
    id="08.regime",
    title="Name the regime",
    level=1,
    minutes=10,
    task="""
Write `regime(facts)`. It returns one of `"loader"`, `"synchronisation"`, `"launch"`, `"memory"`, `"compute"`,
`"small kernels"`. `facts` holds five shares, from 0 to 1:

- `facts.busy`: the share of the time in which the device computes.
- `facts.loading`: the share in which the host loads data.
- `facts.waiting`: the share in which the host waits for the device.
- `facts.flop_share`, `facts.byte_share`: while the device computes, how near it comes to its best FLOP/s, and
  to its best bytes/s.

A device that is busy for at least 0.75 of the time sets the pace. Then look at the last two shares. If both
are below 0.3, the kernels are too small to fill the device. Otherwise the larger of the two names the limit.
If they are equal, it's compute.

A device that is less busy follows the host. If the host loads or waits for at least 0.2 of the time, the
longer of the two names the regime. If they are equal, it's the loader. Otherwise the host only launches.
""",
    hints=(
        "If the device is always busy, a host that waits for it loses nothing. So which of the five shares "
        "should you ask for first?",
        "First compare `facts.busy` with 0.75. Three of the six names are for a busy device, and three are "
        "for a device that the host holds up. In each half, look first for the case in which both of the "
        'other shares are small. That\'s `"small kernels"` in one half and `"launch"` in the other. Then '
        "only two names are left, and the larger share decides.",
        "Here somebody chooses what to wear in the same way. Look at which question comes first, and at "
        "what happens when two numbers are equal.\n"
        """
```python
def outfit(warm, rain, snow):
    if warm:
        return "shirt"
    if max(rain, snow) < 0.1:
        return "jacket"
    return "umbrella" if rain >= snow else "boots"
print(outfit(False, 0.3, 0.3))  # umbrella
```""",
    ),
    reference=regime,
    check_answer=_check_answer,
    why="Keep to this order, because the two halves need different fixes: a busy device needs less work or "
    "cheaper work, and an idle one needs a host that feeds it better. If a busy device reaches little of "
    "either rate, its kernels are too small to fill it, and then a larger batch helps where 16 bits don't.",
    diagnoses={
        "busy-first": "The device is busy for at least 0.75 of the time here. Then it sets the pace, "
        "whatever the host does.",
        "low-shares": "Both shares of the busy device are below 0.3 here. So it is limited by neither: its "
        "kernels are too small to fill it.",
        "larger-share": "The larger share names the limit. If the FLOP/s are nearer to the best rate it's "
        "compute, and if the bytes/s are it's memory.",
        "idle-device": "The device is busy for less than 0.75 of the time here. What it reaches while it "
        "computes does not say why.",
        "no-launch": "Neither the loading nor the waiting reaches 0.2 of the time here. The host only "
        "launches.",
    },
)
