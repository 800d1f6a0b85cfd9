"""Known answers to 08.first_that_runs."""

from course_lessons.lesson08.first_that_runs import MISTAKES


def _with_a_dict(work, devices):
    said = {}
    for device in devices:
        try:
            result = work(device)
        except AssertionError as error:
            if "not compiled" not in str(error):
                raise
            said[device] = error
        except RuntimeError as error:
            said[device] = error
        else:
            return (device, result)
    raise RuntimeError(f"nothing works: {said}")


WRONG = MISTAKES
RIGHT = {"with a dict": _with_a_dict}
