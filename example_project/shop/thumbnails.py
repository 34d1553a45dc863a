"""Pictures in plain Python: CPU-bound work without a dependency."""

import math
import struct
import zlib

# Rows of (red, green, blue).
Pixels = list[list[tuple[int, int, int]]]


def draw_photo(seed: int, *, size: int = 192) -> Pixels:
    """Return a square photo of waves; each seed gives other colours."""
    phases = [(seed * factor % 97) / 97 * math.tau for factor in (3, 5, 7)]
    return [
        [_colour(x / size, y / size, phases) for x in range(size)] for y in range(size)
    ]


def scale_down(pixels: Pixels, *, size: int) -> Pixels:
    """Return a square of that size: each pixel is the mean of those it covers."""
    step = len(pixels) // size
    return [
        [_mean(pixels, x * step, y * step, step) for x in range(size)]
        for y in range(size)
    ]


def write_png(pixels: Pixels) -> bytes:
    """Return the picture as a PNG file."""
    # Each row begins with its filter type: 0 means none.
    rows = b"".join(b"\0" + bytes(sum(row, ())) for row in pixels)
    header = struct.pack(">IIBBBBB", len(pixels[0]), len(pixels), 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        _chunk(name, data)
        for name, data in (
            (b"IHDR", header),
            (b"IDAT", zlib.compress(rows)),
            (b"IEND", b""),
        )
    )


def _colour(x: float, y: float, phases: list[float]) -> tuple[int, int, int]:
    red, green, blue = (
        int(127 + 120 * math.sin(9 * x * y + 4 * math.hypot(x - 0.5, y - 0.5) + phase))
        for phase in phases
    )
    return red, green, blue


def _mean(pixels: Pixels, left: int, top: int, step: int) -> tuple[int, int, int]:
    covered = [
        colour for row in pixels[top : top + step] for colour in row[left : left + step]
    ]
    bands = zip(*covered, strict=True)
    red, green, blue = (sum(band) // len(covered) for band in bands)
    return red, green, blue


def _chunk(name: bytes, data: bytes) -> bytes:
    checksum = struct.pack(">I", zlib.crc32(name + data))
    return struct.pack(">I", len(data)) + name + data + checksum
