"""Compare values, format them briefly, and find where two of them first differ."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from course_language import _

SHORT = 60
"""Two values are shown whole if both texts have at most this many characters."""


def brief(value: object, most: int = 300) -> str:
    """Return a value's repr, or a str itself, truncated to ``most`` characters; never raises."""
    try:
        text = str.__str__(value if isinstance(value, str) else repr(value))
    except Exception as error:  # noqa: BLE001  (a learner's own __repr__ can do anything)
        text = f"<a {type(value).__name__} whose repr fails: {type(error).__name__}>"
    return text if len(text) <= most else text[: most - 1] + "…"


def same(a: object, b: object) -> bool:
    """Return whether two values are equal, recursively in containers; NaN equals NaN.

    Types must be equal (but any mappings may be compared), and arrays' shapes, dtypes and devices.
    """
    if isinstance(a, Mapping) and isinstance(b, Mapping):  # a state_dict and a dict may be equal
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if type(a) is not type(b):
        return False
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    if is_array(a):
        if not _same_shape_dtype_device(a, b):
            return False
        equal = a == b
        return bool(equal.all()) or bool((equal | ((a != a) & (b != b))).all())
    return bool(a == b or (a != a and b != b))


def nearly(rel: float = 1e-5, abs: float = 1e-6) -> Callable[[Any, Any], bool]:
    """Return a function ``alike(a, b)`` that compares values with tolerances, as ``torch.allclose`` does.

    It compares numbers, tensors, lists and dicts recursively. Shapes must be equal; number types, dtypes and
    devices need not be, and a list may equal a tuple. If ``rel`` is at most 1e-4, a float that is the other
    one rounded (see `rounded`) is compared with 2e-6 and 1e-6 instead.
    """

    def alike(a: Any, b: Any) -> bool:
        if isinstance(a, Mapping) and isinstance(b, Mapping):
            return a.keys() == b.keys() and all(alike(a[key], b[key]) for key in a)
        if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
            return len(a) == len(b) and all(alike(x, y) for x, y in zip(a, b, strict=True))
        if is_array(a) or is_array(b):
            import torch

            a, b = (torch.as_tensor(x).detach().to("cpu", torch.float64) for x in (a, b))
            return a.shape == b.shape and torch.allclose(a, b, rel, abs, equal_nan=True)
        if isinstance(a, (int, float)) and isinstance(b, (int, float)):
            cut = rel <= 1e-4 and rounded(a, b)  # then 17 steps of float32
            r, s = (min(rel, 2e-6), min(abs, 1e-6)) if cut else (rel, abs)
            return math.isclose(a, b, rel_tol=r, abs_tol=s) or (a != a and b != b)
        return same(a, b)

    return alike


def rounded(a: object, b: object) -> bool:
    """Return whether ``a`` is the float ``b`` rounded to at most five decimals; for lists, each element."""
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(map(rounded, a, b))
    return isinstance(b, float) and math.isfinite(b) and any(a == round(b, n) for n in range(6))


def agree(alike: Callable[[Any, Any], bool], a: Any, b: Any) -> bool:
    """Return ``bool(alike(a, b))``, or False if that raises."""
    try:
        return bool(alike(a, b))
    except Exception:  # noqa: BLE001  (values of other kinds are not alike)
        return False


def diff_texts(seen: Any, expected: Any, alike: Callable[[Any, Any], bool] = same) -> tuple[str, str]:
    """Return the texts of two values, reduced to their first difference: ``"at [2]: 3"``, ``"at [2]: 4"``.

    Strings, and values with short texts (see `SHORT`), are given whole.
    """
    whole = brief(seen), brief(expected)
    if seen is None or expected is None or isinstance(seen, str) or isinstance(expected, str):
        return whole
    if whole[0] != whole[1] and max(map(len, whole)) <= SHORT:
        return whole
    try:
        path, a, b = _first_difference(seen, expected, alike, "")
    except Exception:  # noqa: BLE001  (whatever cannot be compared is shown whole)
        return whole
    prefix = _("at {place}: ").format(place=path) if path else ""
    return tuple(f"{prefix}{text}" for text in _texts(a, b))


def _first_difference(a: Any, b: Any, alike: Callable[[Any, Any], bool], place: str) -> tuple[str, Any, Any]:
    """Return the index path of the first difference of two values, and what each has there.

    ``place`` is the path so far, such as ``"['w'][2]"``.
    """
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        if a.keys() != b.keys():
            return _("{place} keys").format(place=place).strip(), list(a), list(b)
        pairs = [(f"[{key!r}]", a[key], b[key]) for key in b]
    elif isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        if len(a) != len(b):
            few = max(len(brief(a)), len(brief(b))) <= 2 * SHORT
            return (
                (place, a, b)
                if few
                else (
                    place,
                    _("{count} things").format(count=len(a)),
                    _("{count} things").format(count=len(b)),
                )
            )
        pairs = [(f"[{index}]", x, y) for index, (x, y) in enumerate(zip(a, b, strict=True))]
    elif is_array(a) and is_array(b) and tuple(a.shape) != tuple(b.shape):
        return (
            place,
            _("shape {shape}").format(shape=tuple(a.shape)),
            _("shape {shape}").format(shape=tuple(b.shape)),
        )
    elif is_array(a) and is_array(b) and len(a.shape):
        pairs = [(f"[{index}]", x, y) for index, (x, y) in enumerate(zip(a, b, strict=True))]
    else:
        x, y = (v.item() if is_array(v) and math.prod(v.shape) == 1 else v for v in (a, b))
        return (place, x, y) if not same(x, y) else (place, _describe_type(a), _describe_type(b))
    for part, x, y in pairs:
        if not agree(alike, x, y):
            return _first_difference(x, y, alike, place + part)
    return place, a, b


def _texts(a: Any, b: Any) -> tuple[str, str]:
    """Return the texts of two values; floats in as few digits (6 or 9) as still differ."""
    texts = brief(a), brief(b)
    for digits in (9, 6) if isinstance(a, float) and isinstance(b, float) else ():
        shorter = f"{a:.{digits}g}", f"{b:.{digits}g}"
        texts = shorter if shorter[0] != shorter[1] else texts
    return texts


def _describe_type(value: Any) -> str:
    """Return what tells apart two values that look equal: a type, or an array's dtype and device."""
    if not is_array(value):
        return f"{brief(value)} ({type(value).__name__})"
    return (
        _("{dtype} on {device}").format(dtype=value.dtype, device=value.device)
        if hasattr(value, "device")
        else f"{value.dtype}"
    )


def _same_shape_dtype_device(a: Any, b: Any) -> bool:
    """Return whether two arrays have the same shape, dtype and device."""
    return all(getattr(a, n, None) == getattr(b, n, None) for n in ("shape", "dtype", "device"))


def is_array(value: object) -> bool:
    """Return whether a value has a shape and a dtype: a tensor, or a NumPy array or scalar."""
    return hasattr(value, "shape") and hasattr(value, "dtype")
