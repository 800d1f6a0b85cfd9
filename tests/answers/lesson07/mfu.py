"""Known answers to 07.mfu."""

from course_lessons.lesson07.mfu import MFU_TWINS

_TEST = "if share > 1:"
_REFUSAL = 'raise ValueError(f"{share:.2f} of the peak: one of the three numbers is wrong")'
WRONG = {
    **MFU_TWINS,
    "refused": {_TEST: "if share > 0.3:"},
    "asserted": {_REFUSAL: 'assert share <= 1, "above the peak"'},
    "other-error": {_REFUSAL: 'raise RuntimeError("above the peak")'},
    "returned": {_REFUSAL: 'return ValueError("above the peak")'},
    "no-words": {_REFUSAL: "raise ValueError"},
    "other-share": lambda flops_per_step, seconds_per_step, peak: 0.2,
}
RIGHT = {
    "by the rate": {
        "flops_per_step / (seconds_per_step * peak)": "flops_per_step / seconds_per_step / peak"
    }
}
