"""Who owned which slots, step by step, as JSON: what a picture of the memory is redrawn from."""

import json
from pathlib import Path

import numpy as np

from pagesim.core.ledger import CACHED, NOBODY
from pagesim.engine.ownership import Ownership
from pagesim.report.files import opened


def events_json(recorded: Ownership) -> str:
    """The recorded steps, and every change of hands in them.

    ``changes`` has rows ``[step, first unit, number of units, request]``, the request (row of the trace, from 0) null
    where the units were given back, and "cached" where only a prefix cache keeps them; a unit is ``unit_slots`` slots.
    Where several sequences own them, a fifth number says how many, and the request is the first of theirs in the trace.
    The rows of ``first_step`` give all that is owned.
    """
    # By hand: a call of json.dumps for each of some hundred thousand rows takes seconds.
    words = {NOBODY: "null", CACHED: '"cached"'}
    rows = (f"[{step}, {unit}, {count}, {words.get(owner, owner)}{f', {owners}' if owners > 1 else ''}]"
            for step, unit, count, owner, owners in recorded.changes.tolist())
    head = {
        "unit_slots": recorded.unit_slots,
        "num_units": recorded.num_units,
        "first_step": recorded.first_step,
        "last_step": recorded.last_step,
        "start_s": recorded.start_s.tolist(),
    }
    return json.dumps(head, allow_nan=False)[:-1] + ', "changes": [\n' + ",\n".join(rows) + "\n]}\n"


def read_events(path: Path) -> Ownership:
    """The same read back.

    Raises:
        InputError: the file is missing or damaged.
    """
    with opened(path, "the events of a case") as file:
        events = json.load(file)
        changes, owners = events["changes"], {None: NOBODY, "cached": CACHED}
        for change in changes:  # in place: there are hundreds of thousands
            change[3] = owners.get(change[3], change[3])
            if len(change) == 4:
                change.append(1 if change[3] >= 0 else 0)
        return Ownership(events["unit_slots"], events["num_units"], events["first_step"], events["last_step"],
                         np.array(events["start_s"], np.float64), np.array(changes, np.int64).reshape(-1, 5))
