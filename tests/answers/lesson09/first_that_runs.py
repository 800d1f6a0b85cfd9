"""Known answers to 09.first_that_runs."""


def _with_a_dict(work, devices):
    reasons = {}
    for device in devices:
        try:
            result = work(device)
        except AssertionError as error:
            if "not compiled" not in str(error):
                raise
            reasons[device] = error
        except RuntimeError as error:
            reasons[device] = error
        else:
            return (device, result)
    raise RuntimeError(f"nothing works: {reasons}")


RIGHT = {"with a dict": _with_a_dict}
