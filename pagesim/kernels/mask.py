"""What of its sequence a query sees, and how the scores of that become weights."""

from dataclasses import dataclass

import torch

from pagesim.errors import InputError


@dataclass(frozen=True, eq=False)
class Mask:
    """Causal attention, and what some models add to it; ``reference`` has the formula.

    Attributes:
        scale: of the scores; head_dim ** -0.5 if None.
        window: a query sees its own token and this many before it; None: all before it.
        softcap: scores become ``softcap · tanh(score / softcap)``.
        sinks: one logit for each query head, (num_q_heads,), beside those of the tokens, whose weight goes to no value
            (gpt-oss); float, on the device of the call.

    Raises:
        InputError: a number out of range, or sinks of more than one dimension.
    """

    scale: float | None = None
    window: int | None = None
    softcap: float | None = None
    sinks: torch.Tensor | None = None

    def __post_init__(self) -> None:
        if self.scale is not None and not 0 < self.scale < float("inf"):
            raise InputError(f"scale must be a number above 0, got {self.scale}")
        if self.window is not None and self.window < 0:
            raise InputError(f"window must be None or at least 0, got {self.window}")
        if self.softcap is not None and not 0 < self.softcap < float("inf"):
            raise InputError(f"softcap must be None or a number above 0, got {self.softcap}")
        if self.sinks is not None and not (self.sinks.dim() == 1 and self.sinks.is_floating_point()
                                           and self.sinks.is_contiguous()):
            raise InputError("sinks must be one float for each query head, contiguous, got "
                             f"{self.sinks.dtype} {tuple(self.sinks.shape)}")

    def scale_of(self, head_dim: int) -> float:
        return head_dim ** -0.5 if self.scale is None else self.scale


CAUSAL = Mask()
