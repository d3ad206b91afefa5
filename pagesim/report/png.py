"""A PNG of few colours, some hundred bytes where the picture is plain; made here to keep the page free of libraries."""

import struct
import zlib

import numpy as np


def palette_png(pixels: np.ndarray, colours: tuple[str, ...]) -> bytes:
    """An image of indexed colours.

    Args:
        pixels: index of each pixel into ``colours``, -1 is transparent, shape (height, width), the top row first.
        colours: as ``#rrggbb``.
    """
    height, width = pixels.shape
    rows = np.zeros((height, width + 1), np.uint8)  # each row starts with its filter, 0: none
    rows[:, 1:] = pixels + 1
    return (b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0))
            + _chunk(b"PLTE", b"\0\0\0" + b"".join(bytes.fromhex(colour[1:]) for colour in colours))
            + _chunk(b"tRNS", b"\0") + _chunk(b"IDAT", zlib.compress(rows.tobytes(), 9)) + _chunk(b"IEND", b""))


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
