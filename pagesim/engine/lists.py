"""Doubly linked lists threaded through arrays of rows: the running order, and wheels of lists indexed by step.

A wheel keeps the rows that something happens to, in the bucket of the step in which it happens; each bucket is in
running order.  So a step touches only the rows that need memory or end in it.
"""

from typing import NamedTuple

import numpy as np

from pagesim.core.jit import HOT
from pagesim.core.machine import refuse_more_than_there_is


# First and last row of a bucket, -1 if it is empty.
BUCKET = np.dtype([("head", np.int64), ("tail", np.int64)], align=True)
# A row's neighbours in its bucket, and the step of that bucket; -1 for none.
LINK = np.dtype([("next", np.int64), ("prev", np.int64), ("due", np.int64)], align=True)


class Wheel(NamedTuple):
    bucket: np.recarray  # BUCKET, shape (a power of two,)
    link: np.recarray  # LINK, shape (rows,)


def make_wheel(rows: int, most_steps: int) -> Wheel:
    """An empty wheel for steps up to ``most_steps`` ahead."""
    count = 1 << most_steps.bit_length()
    refuse_more_than_there_is(count * BUCKET.itemsize, f"looking {most_steps:,} steps ahead", (
        "a lower max_model_len rejects the requests with the longest outputs"))
    buckets = np.zeros(count, BUCKET).view(np.recarray)
    links = np.zeros(rows, LINK).view(np.recarray)
    for field in (buckets.head, buckets.tail, links.next, links.prev, links.due):
        field[:] = -1
    return Wheel(buckets, links)


@HOT
def wheel_add(wheel, row, step, order):
    """Put ``row`` into the bucket of ``step``, behind the rows with a smaller ``order``: nearly always at the end."""
    buckets, links = wheel.bucket, wheel.link
    at = step & (len(buckets) - 1)
    after = buckets.tail[at]
    while after >= 0 and order[after] > order[row]:
        after = links.prev[after]
    before = buckets.head[at] if after < 0 else links.next[after]
    links.prev[row], links.next[row], links.due[row] = after, before, step
    if after < 0:
        buckets.head[at] = row
    else:
        links.next[after] = row
    if before < 0:
        buckets.tail[at] = row
    else:
        links.prev[before] = row


@HOT
def wheel_drop(wheel, row):
    """Take ``row`` out of its bucket, if it is in one."""
    buckets, links = wheel.bucket, wheel.link
    if links.due[row] < 0:
        return
    at = links.due[row] & (len(buckets) - 1)
    before, after = links.prev[row], links.next[row]
    if before < 0:
        buckets.head[at] = after
    else:
        links.next[before] = after
    if after < 0:
        buckets.tail[at] = before
    else:
        links.prev[after] = before
    links.due[row] = -1


@HOT
def wheel_first(wheel, step):
    """First row of the bucket of ``step``, or -1."""
    return wheel.bucket.head[step & (len(wheel.bucket) - 1)]


@HOT
def wheel_take(wheel, step):
    """Take the first row out of the bucket of ``step``; -1 if there is none."""
    buckets, links = wheel.bucket, wheel.link
    at = step & (len(buckets) - 1)
    row = buckets.head[at]
    if row >= 0:
        after = links.next[row]
        buckets.head[at] = after
        if after < 0:
            buckets.tail[at] = -1
        else:
            links.prev[after] = -1
        links.due[row] = -1
    return row


@HOT
def wheel_move(wheel, step, later, order):
    """Move all rows of a bucket to a later one, which nearly always is empty."""
    buckets, mask = wheel.bucket, len(wheel.bucket) - 1
    if buckets.head[later & mask] < 0:
        buckets.head[later & mask], buckets.tail[later & mask] = buckets.head[step & mask], buckets.tail[step & mask]
        buckets.head[step & mask] = buckets.tail[step & mask] = -1
    else:
        row = wheel_take(wheel, step)
        while row >= 0:
            wheel_add(wheel, row, later, order)
            row = wheel_take(wheel, step)
