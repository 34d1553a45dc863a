"""Bar charts as SVG, written by hand: no dependency for a few rectangles."""

from __future__ import annotations

from dataclasses import dataclass
from xml.sax.saxutils import escape

WIDTH = 800
LEFT = 260
RIGHT = 90
TOP = 44
STEP = 26
THICK = 16
OURS = "#0c6b58"
THEIRS = "#9aa5b1"
INK = "#1f2933"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One bar with its spread and its label."""

    label: str
    value: float
    low: float
    high: float
    text: str
    is_ours: bool = False


def draw_bars(title: str, bars: list[Bar]) -> str:
    """Return a chart of horizontal bars, in the order given."""
    longest = max((bar.high for bar in bars), default=0) or 1
    scale = (WIDTH - LEFT - RIGHT) / longest
    height = TOP + STEP * len(bars) + 10
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        f'font-family="system-ui, sans-serif" font-size="13" fill="{INK}" role="img">',
        f"<title>{escape(title)}</title>",
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
        f'<text x="12" y="24" font-size="15" font-weight="600">{escape(title)}</text>',
    ]
    for number, bar in enumerate(bars):
        parts += _draw_bar(bar, y=TOP + STEP * number, scale=scale)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _draw_bar(bar: Bar, *, y: int, scale: float) -> list[str]:
    width = max(bar.value * scale, 1)
    low, high = LEFT + bar.low * scale, LEFT + bar.high * scale
    middle, base = y + THICK / 2, y + 13
    color = OURS if bar.is_ours else THEIRS
    weight = ' font-weight="600"' if bar.is_ours else ""
    return [
        f'<text x="{LEFT - 8}" y="{base}" text-anchor="end"{weight}>'
        f"{escape(bar.label)}</text>",
        f'<rect x="{LEFT}" y="{y}" width="{width:.1f}" height="{THICK}" '
        f'fill="{color}"/>',
        f'<path d="M{low:.1f} {middle}H{high:.1f}M{low:.1f} {y + 4}v8'
        f'M{high:.1f} {y + 4}v8" stroke="{INK}" fill="none"/>',
        f'<text x="{max(high, LEFT + width) + 6:.1f}" y="{base}">'
        f"{escape(bar.text)}</text>",
    ]
