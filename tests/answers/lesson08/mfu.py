"""Known answers to 08.mfu."""

_TEST = "if share > 1:"
_REFUSAL = 'raise ValueError(f"{share:.2f} of the peak: one of the three numbers is wrong")'
WRONG = {
    "returned": {_REFUSAL: 'return ValueError("above the peak")'},
    "wrong-value": ({_TEST: "if share >= 1:"}, {_REFUSAL: "raise ValueError"}),
}
RIGHT = {
    "by the rate": {"flops_per_step / (seconds_per_step * peak)": "flops_per_step / seconds_per_step / peak"}
}
