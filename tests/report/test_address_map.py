"""report/address_map.py, report/png.py: every cell of a map is what was owned."""

import struct
import zlib

import numpy as np
import pytest

from pagesim.allocators import Contiguous, Paged
from pagesim.engine.ownership import NOBODY, ownership
from pagesim.engine.durations import Linear
from pagesim.engine.scheduling import Scheduling
from pagesim.engine.run import Run
from pagesim.engine.setup import Setup
from pagesim.report.address_map import address_map
from pagesim.report.png import palette_png
from pagesim.trace import Trace
from pagesim.trace.instants import whole_ns


def recorded(allocator):
    rng = np.random.default_rng(5)
    lengths = [rng.integers(1, 30, 50).astype(np.int32) for _ in range(2)]
    trace = Trace(whole_ns(np.sort(rng.uniform(0, 3, 50))), *lengths)

    def make():
        return Run(Setup(trace, allocator, 203, 64, Scheduling(), Linear(0.05)))

    finished = make()
    finished.advance()
    return ownership(make, finished, 60)


@pytest.mark.parametrize("allocator", [Paged(8), Paged(1), Contiguous("exact"), Contiguous("grow", "buddy")])
@pytest.mark.parametrize("most", [(1000, 1000), (7, 13), (1, 1)])
def test_every_cell_is_the_owner_of_its_unit_at_its_step(allocator, most):
    events = recorded(allocator)
    seen = address_map(events, *most)
    assert seen.owners.shape == (min(most[0], events.num_units), min(most[1], len(events.start_s)))
    for column, step in enumerate(seen.steps.tolist()):
        np.testing.assert_array_equal(seen.num_owners[:, column], events.num_owners_at(step)[seen.units])
        np.testing.assert_array_equal(seen.owners[:, column], events.owners_at(step)[seen.units])
        assert seen.start_s[column] == events.start_s[step - events.first_step]


def test_a_request_keeps_its_colour_and_only_free_cells_have_none():
    seen = address_map(recorded(Contiguous("exact")), 1000, 1000)
    colour_of = {}
    for owner, colour in zip(seen.owners.ravel().tolist(), seen.colours.ravel().tolist()):
        assert colour_of.setdefault(owner, colour) == colour and (colour == -1) == (owner == NOBODY)


def test_neighbouring_regions_have_different_colours_when_the_later_one_appears():
    seen = address_map(recorded(Contiguous("exact")), 1000, 1000)
    first = {}
    for column in range(seen.owners.shape[1]):
        owners, colours = seen.owners[:, column], seen.colours[:, column]
        for low, high in zip(range(len(owners)), range(1, len(owners))):
            new = owners[low] not in first or owners[high] not in first
            if new and owners[low] != owners[high] and NOBODY not in (owners[low], owners[high]):
                assert colours[low] != colours[high]
        first |= dict.fromkeys(owners.tolist())


def test_a_png_holds_its_pixels_top_row_first():
    pixels = np.array([[0, -1, 1], [1, 1, -1]], np.int8)
    data = palette_png(pixels, ("#102030", "#ff0000"))
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    at, chunks = 8, {}
    while at < len(data):
        (length,) = struct.unpack(">I", data[at:at + 4])
        body = data[at + 4:at + 8 + length]
        assert struct.unpack(">I", data[at + 8 + length:at + 12 + length]) == (zlib.crc32(body),)
        chunks[body[:4]] = body[4:]
        at += 12 + length
    assert struct.unpack(">II", chunks[b"IHDR"][:8]) == (3, 2)
    assert chunks[b"PLTE"][3:] == bytes([0x10, 0x20, 0x30, 0xFF, 0, 0]) and chunks[b"tRNS"] == b"\0"
    assert zlib.decompress(chunks[b"IDAT"]) == bytes([0, 1, 0, 2, 0, 2, 2, 0])
