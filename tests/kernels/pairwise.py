"""Few combinations in which every pair of values of any two factors occurs."""

from itertools import combinations, product


def pairwise(factors: dict[str, list]) -> list[dict]:
    """Greedy: start from a pair not seen yet, and choose each other value so that most new pairs are seen."""
    names = list(factors)
    missing = {(a, i, b, j): None for a, b in combinations(names, 2)
               for i, j in product(range(len(factors[a])), range(len(factors[b])))}
    rows = []
    while missing:
        a, i, b, j = next(iter(missing))
        row = {a: i, b: j}
        for name in names:
            if name not in row:
                row[name] = max(range(len(factors[name])),
                                key=lambda k: sum(pair in missing for pair in _pairs(names, row | {name: k})))
        for pair in _pairs(names, row):
            missing.pop(pair, None)
        rows.append({name: factors[name][row[name]] for name in names})
    return rows


def label(row: dict) -> str:
    """A row as a test's name."""
    return "-".join(str(value).replace("torch.", "").replace(" ", "") for value in row.values())


def _pairs(names: list[str], row: dict[str, int]) -> list[tuple]:
    chosen = [name for name in names if name in row]
    return [(a, row[a], b, row[b]) for a, b in combinations(chosen, 2)]
