"""How many prompt tokens one prefix id stands for: stated, or what ids and lengths leave possible."""

from dataclasses import dataclass, replace

import numpy as np

from pagesim.core.units import ceil_div
from pagesim.errors import TraceError

_MOST = 2**31 - 1


@dataclass(frozen=True)
class Granularity:
    """Half-way through a file: from ``least`` to ``most`` tokens to an id, as the rows so far say.

    A prompt of p tokens has ``n = ceil(p / tokens)`` ids, so ``ceil(p / n) <= tokens < p / (n - 1)``.

    Attributes:
        least_from, most_from: what said so, for a message; None before any did.
    """

    least: int = 1
    most: int = _MOST
    least_from: str | None = None
    most_from: str | None = None

    @classmethod
    def stated(cls, tokens: int) -> "Granularity":
        return cls(tokens, tokens)

    def narrowed(self, prompt_tokens: np.ndarray, num_ids: np.ndarray, line: np.ndarray) -> "tuple[Granularity, int]":
        """After some more rows, and the first of them that contradicts those before it, -1 if none does.

        Args:
            prompt_tokens, num_ids, line: of each row, int64, shape (num_rows,); a row without ids says nothing.
        """
        says = np.flatnonzero(num_ids > 0)
        tokens, ids = prompt_tokens[says], num_ids[says]
        least = np.maximum.accumulate(np.concatenate(([self.least], ceil_div(tokens, ids))))
        most = np.where(ids > 1, ceil_div(tokens, np.maximum(ids - 1, 1)) - 1, _MOST)
        most = np.minimum.accumulate(np.concatenate(([self.most], most)))
        bad = np.flatnonzero(least > most)
        if len(bad):
            row = int(says[bad[0] - 1])
            return self.narrowed(prompt_tokens[:row], num_ids[:row], line[:row])[0], row

        def source(bounds: np.ndarray, before: str | None) -> str | None:
            at = int(np.flatnonzero(bounds == bounds[-1])[0])
            row = at - 1
            return before if not at else f"line {line[says[row]]}: {ids[row]} for {tokens[row]:,} tokens"

        return replace(self, least=int(least[-1]), most=int(most[-1]), least_from=source(least, self.least_from),
                       most_from=source(most, self.most_from)), -1

    def expected(self, prompt_tokens: int) -> str:
        """What a row that contradicts should have had."""
        if self.least == self.most:
            num = ceil_div(prompt_tokens, self.least)
            return f"expected {num} (one for each {self.least} tokens or part of them)"
        rows = " and ".join(dict.fromkeys(filter(None, (self.least_from, self.most_from))))
        most = f"{self.least:,} or more" if self.most == _MOST else f"{self.least:,} to {self.most:,}"
        return f"but the rows above have one for each {most} tokens ({rows})"

    def tokens(self, usual: int | None, path: str) -> int:
        """The one size that the file leaves: the form's usual one if it can be, else the only one that is certain or a
        power of two.

        Raises:
            TraceError: several are possible, or no likely one.
        """
        if usual and self.least <= usual <= self.most:
            return usual
        powers = [2**k for k in range(31) if self.least <= 2**k <= self.most]
        if self.least == self.most or len(powers) == 1:
            return self.least if self.least == self.most else powers[0]
        rows = " and ".join(dict.fromkeys(filter(None, (self.least_from, self.most_from))))
        most = "more" if self.most == _MOST else f"{self.most:,}"
        raise TraceError(f"{path}: prefix ids may stand for {self.least:,} to {most} tokens each ({rows}); say how "
                         "many in a column prefix_block_tokens, which 'pagesim trace convert' adds with "
                         "--prefix-block-tokens N")
