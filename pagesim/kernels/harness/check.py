"""Is an output right?  The error of every row against the reference, and the bounds that it must keep."""

from dataclasses import dataclass

import numpy as np
import torch


@dataclass(frozen=True)
class Bounds:
    """Largest relative error allowed on average and in the worst row."""

    mean: float
    worst: float


# An ideal kernel, exact until it rounds its inputs to products and its output, has 2.3e-3 and 3.1e-3 in bf16.
BOUNDS = {torch.bfloat16: Bounds(3e-3, 4e-3), torch.float16: Bounds(4e-4, 5e-4), torch.float32: Bounds(1e-6, 3e-6)}
EAGER_FACTOR = 1.5


@dataclass(frozen=True)
class Verdict:
    """What a comparison found.

    Attributes:
        mean, worst: relative error over the rows, and of the worst row.
        where: index of the worst row: (sequence, query, head).
        bounds: what was allowed.
        num_rows: rows compared.
        num_wrong: rows whose error is above ``bounds.worst``, NaN included.
    """

    mean: float
    worst: float
    where: tuple[int, ...]
    bounds: Bounds
    num_rows: int
    num_wrong: int

    @property
    def passed(self) -> bool:
        return self.mean <= self.bounds.mean and self.worst <= self.bounds.worst


def row_errors(out: torch.Tensor, expected: torch.Tensor) -> np.ndarray:
    """``|out - expected| / |expected|`` in Euclidean norm over the last dimension, float64, shape ``out.shape[:-1]``.

    A row, not the whole tensor: over causal attention the norm is mostly that of the first rows, which hide the others.
    Where the expected row is zero the error is 0 for an exact zero and infinite for anything else; NaN is infinite.
    """
    difference = (out.double() - expected.double()).norm(dim=-1)
    size = expected.double().norm(dim=-1)
    error = torch.where(difference == 0, 0.0, difference / size)
    return error.nan_to_num(nan=torch.inf, posinf=torch.inf).cpu().numpy()


def compare(out: torch.Tensor, expected: torch.Tensor, *, eager: torch.Tensor | None = None) -> Verdict:
    """Judge ``out`` row by row.

    Args:
        out: shape (..., head_dim), in the dtype whose bounds apply.
        expected: the reference in float64, same shape.
        eager: the definition computed in the dtype of ``out``; where given, 1.5 times its error is allowed too.
    """
    errors = row_errors(out, expected)
    bounds = BOUNDS[out.dtype]
    if eager is not None and errors.size:
        eager_errors = row_errors(eager, expected)
        bounds = Bounds(max(bounds.mean, EAGER_FACTOR * float(eager_errors.mean())),
                        max(bounds.worst, EAGER_FACTOR * float(eager_errors.max())))
    if not errors.size:
        return Verdict(0.0, 0.0, (), bounds, 0, 0)
    where = tuple(int(i) for i in np.unravel_index(errors.argmax(), errors.shape))
    return Verdict(float(errors.mean()), float(errors[where]), where, bounds, errors.size,
                   int((errors > bounds.worst).sum()))
