"""Compile the catalogues into the wheel, which carries no sources of them."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CatalogueHook(BuildHookInterface):
    """Adds ``messages.mo`` for each language; an editable install reads the catalogues themselves."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Write the compiled catalogues and have them included."""
        if version == "editable":
            return
        sys.path.insert(0, self.root)
        from course_language import catalogue

        self.scratch = tempfile.TemporaryDirectory()
        for source in Path(self.root).glob("course_language/*/course.po"):
            target = Path(self.scratch.name, f"{source.parent.name}.mo")
            target.write_bytes(catalogue.compile_mo(source.parent))
            place = source.with_name("messages.mo").relative_to(self.root).as_posix()
            build_data["force_include"][str(target)] = place
