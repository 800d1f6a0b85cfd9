"""Monkey-patches that can be reverted."""

from __future__ import annotations

from typing import Any

_MISSING = object()


class Patches:
    """A list of replaced attributes."""

    def __init__(self) -> None:
        self._replaced: list[tuple[Any, str, Any]] = []

    def set(self, owner: Any, name: str, value: Any) -> None:
        """Set ``owner.name`` to ``value`` and remember what it was."""
        self._replaced.append((owner, name, vars(owner).get(name, _MISSING)))
        setattr(owner, name, value)

    def revert(self) -> None:
        """Restore all attributes, the last one first."""
        while self._replaced:
            owner, name, value = self._replaced.pop()
            if value is _MISSING:
                delattr(owner, name)
            else:
                setattr(owner, name, value)
