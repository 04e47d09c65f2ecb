"""A Matplotlib figure as SVG that can stand in a page: text as text, colours by the page's names, ids of its own.

The same drawing gives the same text, byte for byte, with the same Matplotlib; neither its settings file nor a display
matters. Matplotlib is loaded in this folder only, and only when a page is made.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any
from unicodedata import east_asian_width
from xml.etree import ElementTree as ET

from tokenpulse.reporting.html.markup import Markup, plain
from tokenpulse.reporting.html.style import LIGHT
from tokenpulse.reporting.text import printable

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MISSING = "the HTML page needs Matplotlib, which is not installed: pip install 'tokenpulse[plot]'"

FONT = 12.0
"""Size of every text in a figure, in units of which a figure is so many wide and high."""

POINTS_PER_INCH = 72

_SENTINELS = {name: f"#f00{place:03x}" for place, name in enumerate(LIGHT)}
_NAMES = {sentinel: name for name, sentinel in _SENTINELS.items()}

_COLOUR = re.compile(r"#[0-9a-f]{6}\b")
_DECIMALS = re.compile(r"-?\d+\.\d+(?:e[-+]?\d+)?")
_ROOM = re.compile(r"\s+")
_FONT_RULES = re.compile(r"font(?:-[a-z]+)?\s*:[^;]*;?\s*")

SVG = "{http://www.w3.org/2000/svg}"
LINK = "{http://www.w3.org/1999/xlink}href"

STYLE: dict[str, Any] = {
    "svg.fonttype": "none",
    "font.family": "DejaVu Sans",
    "font.size": FONT,
    "path.simplify": True,
    "path.simplify_threshold": 0.1,
    "axes.linewidth": 0.8,
}


def check() -> None:
    """Raise ModuleNotFoundError, naming the extra, where Matplotlib is not installed."""
    try:
        import matplotlib  # noqa: F401
    except ModuleNotFoundError:
        raise ModuleNotFoundError(MISSING) from None


def colour(name: str) -> str:
    """The colour to draw with for one of the page's names; it becomes that name in the page."""
    return _SENTINELS[name]


@contextmanager
def drawing() -> Iterator[None]:
    """Matplotlib with settings that depend on nothing outside; put back afterwards."""
    import matplotlib as mpl

    with mpl.rc_context(), warnings.catch_warnings():
        # A label may have letters that Matplotlib's own font lacks; it is the browser that draws them.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        mpl.rcdefaults()
        mpl.rcParams.update(STYLE)
        yield


def inline(
    name: str, size: tuple[float, float], paint: Callable[[Figure], None], title: str, told: str, shown: str | None
) -> Markup:
    """What `paint` draws on a figure of this size, as an SVG element.

    `name` tells its ids apart from those of other figures, `title` and `told` are its name and description for those
    who cannot see it, `shown` is its class.
    """
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    width, height = size
    figure = Figure(figsize=(width / POINTS_PER_INCH, height / POINTS_PER_INCH), dpi=POINTS_PER_INCH)
    FigureCanvasSVG(figure)
    figure.patch.set_visible(False)
    paint(figure)
    file = io.BytesIO()
    figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None})
    root = ET.fromstring(file.getvalue())
    names = _referenced(root, name)
    inside = "".join(_element(child, names) for child in root)
    head = f'<svg viewBox="0 0 {width:g} {height:g}" role="img" aria-labelledby="{name}-t {name}-d"'
    if shown is not None:
        head += f' class="{shown}"'
    titles = f'<title id="{name}-t">{plain(title)}</title><desc id="{name}-d">{plain(told)}</desc>'
    return Markup(f"{head}>{titles}{inside}</svg>")


def _referenced(root: ET.Element, name: str) -> dict[str, str]:
    """New names for the ids that something in the drawing refers to, in order: Matplotlib's differ each time."""
    found: dict[str, str] = {}
    for element in root.iter():
        for key, value in element.attrib.items():
            if key == LINK or value.startswith("url(#"):
                old = value.strip("url()").removeprefix("#")
                found.setdefault(old, f"{name}-{len(found)}")
    return found


def _element(element: ET.Element, names: dict[str, str]) -> str:
    """An element and what is in it, without what the page does not need."""
    kind = element.tag.removeprefix(SVG)
    if kind in ("metadata", "style"):
        return ""
    attributes = _attributes(element, kind, names)
    inside = plain(element.text) if kind == "text" and element.text else ""
    inside += "".join(_element(child, names) for child in element)
    if kind in ("g", "defs") and (not inside or (not attributes and kind == "g")):
        return inside
    told = "".join(f' {key}="{plain(value)}"' for key, value in attributes.items())
    return f"<{kind}{told}>{inside}</{kind}>" if inside or kind == "text" else f"<{kind}{told}/>"


def _attributes(element: ET.Element, kind: str, names: dict[str, str]) -> dict[str, str]:
    kept: dict[str, str] = {}
    for key, value in element.attrib.items():
        if key == "id":
            if value in names:
                kept["id"] = names[value]
            elif value == "halo":
                kept["class"] = value
        elif key == LINK:
            kept["href"] = "#" + names[value.removeprefix("#")]
        elif value.startswith("url(#"):
            kept[key] = f"url(#{names[value[5:-1]]})"
        elif key == "style":
            style = _style(_FONT_RULES.sub("", value) if kind == "text" else value)
            if style:
                kept["style"] = style
        elif key == "transform" and value.startswith("rotate(-0 "):
            continue
        else:
            kept[key] = _ROOM.sub(" ", _DECIMALS.sub(_shorter, value)).strip()
    return kept


def _shorter(found: re.Match[str]) -> str:
    """A coordinate to a tenth of a unit."""
    return f"{round(float(found[0]), 1):g}"


def _style(value: str) -> str:
    named = _COLOUR.sub(lambda found: f"var(--{_NAMES[found[0]]})", value)
    return named.strip().removesuffix(";").replace(": ", ":").replace("; ", ";")


@cache
def _width_of_a_letter(letter: str) -> float:
    from matplotlib.textpath import text_to_path

    if not letter.isascii():
        # Drawn in a font that is not known here; those of East Asia are as wide as they are high.
        return FONT if east_asian_width(letter) in "WF" else 0.8 * FONT
    from matplotlib.font_manager import FontProperties

    font = FontProperties(family="DejaVu Sans", size=FONT)
    return float(text_to_path.get_text_width_height_descent(letter, font, ismath=False)[0])


def width_of(text: str) -> float:
    """How wide a text is, in units of the figure: in DejaVu Sans, which is wider than what most browsers use."""
    return sum(_width_of_a_letter(letter) for letter in text)


def fitted(text: str, room: float) -> str:
    """A text that is no wider than there is room: its end is left out, and said to be, where it must.

    >>> import pytest; _ = pytest.importorskip("matplotlib")
    >>> fitted("conversation", 200), fitted("conversation", 60)
    ('conversation', 'conver...')
    """
    kept = text = printable(text)
    if width_of(text) <= room:
        return text
    while kept and width_of(kept + "...") > room:
        kept = kept[:-1]
    return kept.rstrip() + "..."
