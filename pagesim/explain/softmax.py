"""Lesson: attention block by block, with a running maximum, sum and output, equals attention in one pass.

For scores s_t = q·k_t and a block j, with the running maximum m, sum ℓ and unnormalised output O (Milakov and
Gimelshein 2018; Kwon et al. 2023):

    m' = max(m, max s_t)    ℓ' = ℓ·e^{m-m'} + Σ e^{s_t-m'}    O' = O·e^{m-m'} + Σ e^{s_t-m'} v_t    out = O / ℓ
"""

import math
from typing import NamedTuple

import numpy as np

from pagesim.explain.lesson import Lesson, Question

BLOCK = 2
QUERY = np.array([1.0, 2.0])
KEYS = np.array([[1.0, 0.0], [1.0, 1.0], [0.0, 1.0], [0.0, 0.0], [2.0, 1.0]])
VALUES = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [5.0, 5.0], [2.0, 0.0]])


class Running(NamedTuple):
    """m, ℓ and O after some blocks."""

    maximum: float
    total: float
    out: np.ndarray


NOTHING = Running(-math.inf, 0.0, np.zeros(VALUES.shape[1]))


def absorb(running: Running, scores: np.ndarray, values: np.ndarray) -> Running:
    """One more block, whose ``scores`` have shape (tokens,) and ``values`` (tokens, head_dim)."""
    maximum = max(running.maximum, scores.max())
    keep, weights = math.exp(running.maximum - maximum), np.exp(scores - maximum)
    return Running(maximum, running.total * keep + weights.sum(), running.out * keep + weights @ values)


def one_pass(scores: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Softmax of all scores at once, times the values."""
    weights = np.exp(scores - scores.max())
    return weights @ values / weights.sum()


def softmax() -> Lesson:
    """Five tokens in blocks of two."""
    scores = KEYS @ QUERY
    lines = [
        f"One query q = {_vector(QUERY)}, five tokens in blocks of {BLOCK}; the scores q·k_t are",
        "",
        *(f"  token {t}   k {_vector(key):8} q·k = {score:.0f}   v {_vector(value)}"
          for t, (key, score, value) in enumerate(zip(KEYS, scores, VALUES))),
        "",
        "Softmax needs the largest score and the sum over all tokens, but blocks come",
        "one at a time.  So keep the largest score so far (m), the sum (ℓ) and the",
        "weighted values (O), both as if m were the largest of all; when a block raises",
        "m, multiply ℓ and O by e^(old m − new m):",
        "",
        f"  {'block':7}{'scores':10}{'m':>3}  {'ℓ, O times':>10}{'ℓ':>9}   O",
    ]
    running, factors = NOTHING, []
    for start in range(0, len(scores), BLOCK):
        block = slice(start, start + BLOCK)
        before, running = running, absorb(running, scores[block], VALUES[block])
        factors.append(math.exp(before.maximum - running.maximum))
        lines.append(f"  {start // BLOCK:<7}{_vector(scores[block]):10}{running.maximum:>3.0f}  {factors[-1]:>10.4f}"
                     f"{running.total:>9.4f}   {_vector(running.out, 4)}")
    out, whole = running.out / running.total, one_pass(scores, VALUES)
    lines += [
        "",
        f"  O / ℓ       = {_vector(out, 6)}",
        f"  in one pass = {_vector(whole, 6)}   difference {np.abs(out - whole).max():.1e}",
        "",
        "No block was looked at twice and none had to lie beside another: a block table",
        "is enough for exact attention.",
    ]
    last = 6.0
    return Lesson("Softmax, block by block", tuple(lines), Question(
        f"A sixth token comes, with score {last:.0f}.  By what are ℓ and O multiplied before it is added?",
        math.exp(running.maximum - last),
        f"e^({running.maximum:.0f} − {last:.0f}) = {math.exp(running.maximum - last):.4f}"))


def _vector(values: np.ndarray, digits: int = 0) -> str:
    return f"[{', '.join(f'{value:.{digits}f}' for value in values)}]"
