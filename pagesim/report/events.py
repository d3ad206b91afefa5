"""Who owned which slots, step by step, as JSON: what a picture of the memory is redrawn from."""

import json

from pagesim.core.ledger import CACHED, NOBODY
from pagesim.engine.ownership import Ownership


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
