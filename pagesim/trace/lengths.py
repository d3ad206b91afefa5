"""Distributions of token counts: by mean and spread, or by the quantiles of a measured trace."""

from dataclasses import dataclass

import numpy as np

from pagesim.errors import InputError


def refuse_unless_positive(what: str, **values: float) -> None:
    for name, value in values.items():
        if not 0 < value < float("inf"):
            raise InputError(f"{name} of {what} must be finite and above 0, got {value}")


@dataclass(frozen=True)
class Constant:
    """The same count for all."""

    tokens: float

    def __post_init__(self) -> None:
        refuse_unless_positive("a length distribution", tokens=self.tokens)

    def draw(self, rng: np.random.Generator, num: int) -> np.ndarray:
        return np.full(num, self.tokens)


@dataclass(frozen=True)
class Lognormal:
    """exp of a normal variable with deviation ``sigma``, scaled to the mean: ``mu = ln(mean) − sigma²/2``."""

    mean: float
    sigma: float

    def __post_init__(self) -> None:
        refuse_unless_positive("a length distribution", mean=self.mean, sigma=self.sigma)

    def draw(self, rng: np.random.Generator, num: int) -> np.ndarray:
        return rng.lognormal(np.log(self.mean) - self.sigma**2 / 2, self.sigma, num)


@dataclass(frozen=True)
class Gamma:
    """Gamma with shape ``1 / cv²``."""

    mean: float
    cv: float

    def __post_init__(self) -> None:
        refuse_unless_positive("a length distribution", mean=self.mean, cv=self.cv)
        if not 1e-6 <= self.cv <= 1e6:
            raise InputError(f"cv of a length distribution must lie between 1e-6 and 1e6, got {self.cv:g}")

    def draw(self, rng: np.random.Generator, num: int) -> np.ndarray:
        return rng.gamma(self.cv**-2, self.mean * self.cv**2, num)


@dataclass(frozen=True)
class Quantiles:
    """A measured distribution, straight between the points ``(share of requests, tokens)``, from share 0 to share 1."""

    points: tuple[tuple[float, float], ...]

    def __post_init__(self) -> None:
        shares, tokens = [share for share, _ in self.points], [tokens for _, tokens in self.points]
        rising = shares == sorted(set(shares)) and tokens == sorted(tokens)
        if not rising or [*shares[:1], *shares[-1:]] != [0, 1]:
            raise InputError(f"quantiles must rise from share 0 to share 1, like 0=1,0.5=100,1=2000, got {self.points}")
        refuse_unless_positive("a length distribution", tokens=tokens[0], most_tokens=tokens[-1])

    def draw(self, rng: np.random.Generator, num: int) -> np.ndarray:
        return np.interp(rng.random(num), *zip(*self.points))


Lengths = Constant | Lognormal | Gamma | Quantiles
_KINDS = {"constant": Constant, "lognormal": Lognormal, "gamma": Gamma}
_USAGE = "lognormal:mean=182,sigma=1.05 | gamma:mean=345,cv=0.88 | constant:tokens=100 | quantiles:0=1,0.5=100,1=2000"


def parse_lengths(text: str) -> Lengths:
    """A distribution as the command line spells it: ``gamma:mean=345,cv=0.88``.

    Raises:
        InputError: another spelling, or numbers that make no distribution.
    """
    kind, _, rest = text.partition(":")
    try:
        pairs = [(name.strip(), float(value)) for name, value in (pair.split("=") for pair in rest.split(","))]
        if kind == "quantiles":
            return Quantiles(tuple((float(share), tokens) for share, tokens in pairs))
        return _KINDS[kind](**dict(pairs))
    except InputError:
        raise
    except (KeyError, ValueError, TypeError):
        raise InputError(f"a length distribution is written {_USAGE}; got {text!r}") from None
