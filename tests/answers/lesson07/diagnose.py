"""Known wrong answers to 07.diagnose."""

from course_lessons.lesson07.diagnose import diagnose

WRONG = {
    "not-enough": {'found["free"] + found["unallocated"]': 'found["allocated"] + found["unallocated"]'},
    "enough-in-pieces": lambda message: "too large",
    "not-their-fault": lambda message: "someone else" if "Process" in message else diagnose(message),
    "wrong-value": {"within_reach + others": "within_reach"},
}
