"""Some of the sequences of simulated steps, in a pool no larger than they need."""

import numpy as np

from pagesim.core.blocktables import BlockTables, renumbered


def choose(steps: list[BlockTables], count: int,
           entry: tuple[int, int] | None = None) -> tuple[list[BlockTables], list[list[int]]]:
    """Up to ``count`` sequences of each step, in the smallest pool that holds them, and their places in that step.

    Of one step they are evenly spread over the running order, with the sequence of ``entry`` (its place, and a table
    entry) and a neighbour among them; of several they are the first of each.
    """
    places = [np.arange(min(count, step.num_seqs)) for step in steps]
    if all(step.num_seqs <= count for step in steps):
        return steps, [own.tolist() for own in places]
    if len(steps) == 1:
        total = steps[0].num_seqs
        spread = np.linspace(0, total - 1, count).round().astype(int)
        if entry is not None and entry[0] < total:
            spread = np.concatenate([spread, [entry[0], (entry[0] + 1) % total]])
        places = [np.unique(spread)]
    chosen = renumbered([step.select(own) for step, own in zip(steps, places, strict=True)])
    return chosen, [own.tolist() for own in places]
