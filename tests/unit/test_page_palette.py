"""The page's colours, computed from its palette: contrast of texts and graphics (WCAG 2.1 AA), and departments that people with
every kind of colour vision can tell apart.

Source: contrast and relative luminance: WCAG 2.1, 1.4.3 and 1.4.11.  Colour vision: Machado, Oliveira, Fernandes 2009, severity
1.  Differences: OKLab (Ottosson 2020), Euclidean.
"""

from __future__ import annotations

import math
import re
from itertools import combinations
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[2] / "services" / "monitor" / "http" / "page"
TEXT, GRAPHICS = 4.5, 3.0
APART, FIRST_APART = 0.07, 0.11  # a small square of each beside the other is seen as two; the first four at a glance
Colour = tuple[float, float, float]  # linear RGB

VISION = {
    "usual": ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)),
    "protanopia": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "deuteranopia": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.01182, 0.04294, 0.968881)),
    "tritanopia": ((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602), (0.004733, 0.691367, 0.3039)),
}
GROUNDS = ("page", "surface", "raised", "sunk")


def palette(theme: str) -> dict[str, Colour]:
    css = (PAGE / "palette.css").read_text()
    found = re.findall(r"--([\w-]+): light-dark\((#[0-9a-f]{6}), (#[0-9a-f]{6})\);", css)
    return {name: linear(light if theme == "light" else dark) for name, light, dark in found}


def linear(text: str) -> Colour:
    parts = [int(text[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
    return red, green, blue


def luminance(colour: Colour) -> float:
    return 0.2126 * colour[0] + 0.7152 * colour[1] + 0.0722 * colour[2]


def contrast(one: Colour, other: Colour) -> float:
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def seen(colour: Colour, vision: str) -> Colour:
    red, green, blue = (
        min(1.0, max(0.0, sum(a * b for a, b in zip(row, colour, strict=True)))) for row in VISION[vision]
    )
    return red, green, blue


def oklab(colour: Colour) -> Colour:
    r, g, b = colour
    long = (0.4122214708 * r + 0.5363325363 * g + 0.0514459929 * b) ** (1 / 3)
    middle = (0.2119034982 * r + 0.6806995451 * g + 0.1073969566 * b) ** (1 / 3)
    short = (0.0883024619 * r + 0.2817188376 * g + 0.6299787005 * b) ** (1 / 3)
    return (
        0.2104542553 * long + 0.7936177850 * middle - 0.0040720468 * short,
        1.9779984951 * long - 2.4285922050 * middle + 0.4505937099 * short,
        0.0259040371 * long + 0.7827717662 * middle - 0.8086757660 * short,
    )


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_texts_and_graphics_stand_out_from_what_they_stand_on(theme: str) -> None:
    colours = palette(theme)
    texts = [(name, on) for name in ("ink", "soft", "accent", "bad", "warn") for on in GROUNDS]
    texts += [("ink", "warn-back"), ("ink", "bad-back"), ("on-accent", "accent")]
    low = {(a, b): contrast(colours[a], colours[b]) for a, b in texts if contrast(colours[a], colours[b]) < TEXT}
    assert not low
    owners = [name for name in colours if name.startswith("owner-")]
    graphics = [(name, "surface") for name in (*owners, "free", "edge", "good")]
    low = {(a, b): contrast(colours[a], colours[b]) for a, b in graphics if contrast(colours[a], colours[b]) < GRAPHICS}
    assert not low


@pytest.mark.parametrize("vision", VISION)
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_departments_are_told_apart_by_everybody(theme: str, vision: str) -> None:
    colours = palette(theme)
    owners = [name for name in colours if name.startswith("owner-")]
    assert len(owners) == 8
    places = {name: oklab(seen(colours[name], vision)) for name in owners}
    near = {
        (a, b): round(math.dist(places[a], places[b]), 3)
        for a, b in combinations(owners, 2)
        if math.dist(places[a], places[b]) < (FIRST_APART if b <= "owner-4" else APART)
    }
    assert not near


def test_every_colour_of_the_page_is_in_the_palette() -> None:
    for path in PAGE.glob("*.css"):
        if path.name != "palette.css":
            assert not re.findall(r"#[0-9a-fA-F]{3,8}\b(?!\))", path.read_text()), path.name
            assert set(re.findall(r"var\(--([\w-]+)", path.read_text())) <= known(), path.name


def known() -> set[str]:
    """What stylesheets define, and what scripts set."""
    defined = {name for path in PAGE.glob("*.css") for name in re.findall(r"--([\w-]+):", path.read_text())}
    return defined | {"fill", "share"}
