"""The font of a language's figures: of Noto Sans, the signs that the catalogues use.

``python -m tools.authoring.translation.font zh NotoSansCJK-Regular.ttc "Noto Sans CJK SC"`` makes it again
(Debian's package fonts-noto-cjk has that file, of four faces). matplotlib takes Latin letters from its own
font and these signs from this one.
"""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path

from fontTools.subset import Options, Subsetter
from fontTools.ttLib import TTCollection, TTFont

from course_utils.cli.bootstrap import ROOT
from tools.authoring.translation import catalogues

NAME = "Course Sans"


def characters_needed(language: str) -> set[str]:
    """Return the characters from the catalogues that figures may need and matplotlib's default font lacks.

    Texts of pages and exercises do not occur in figures and are left out.
    """
    found: set[str] = set()
    for path in sorted((catalogues.LANGUAGES / language).rglob("*.po")):
        if path.relative_to(catalogues.LANGUAGES / language).parts[0] == "pages":
            continue
        for entry in catalogues.finished(catalogues.load(path, language)):
            if not all(_is_exercise(place) for place, _ in entry.locations):
                found |= {sign for sign in "".join(entry.string) if ord(sign) >= 0x2E80}
    return found


@cache
def _is_exercise(place: str) -> bool:
    """Return whether a text's location is an exercise's file, whose texts do not occur in figures."""
    path = ROOT / place
    return path.suffix == ".py" and "\nEXERCISE = Exercise(" in path.read_text(encoding="utf-8")


def characters_in_font(path: Path) -> set[str]:
    """Return the characters that a font file contains."""
    return set(map(chr, TTFont(path).getBestCmap()))


def build(language: str, source: Path, face: str, target: Path) -> int:
    """Write a subset of one face of a font collection to ``target``; return its size in bytes."""
    fonts = TTCollection(source).fonts
    font = next(font for font in fonts if font["name"].getDebugName(4) == face)
    options = Options(
        desubroutinize=True,
        notdef_outline=True,
        name_IDs=[0, 1, 2, 3, 4, 6, 13, 14],
        layout_features=[],
    )
    subsetter = Subsetter(options)
    subsetter.populate(unicodes=[ord(sign) for sign in characters_needed(language)])
    subsetter.subset(font)
    for record in font["name"].names:
        if record.nameID in (1, 4, 6):
            record.string = NAME.replace(" ", "") if record.nameID == 6 else NAME
    font.save(target)
    return target.stat().st_size


if __name__ == "__main__":
    language, source, face = sys.argv[1:]
    target = catalogues.LANGUAGES / language / "font.otf"
    print(f"{build(language, Path(source), face, target):,} bytes")
