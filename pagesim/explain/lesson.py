"""What a lesson is: lines to read, and a question whose answer can be checked."""

import math
import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Question:
    """Something that the reader can work out from the lesson.

    Attributes:
        answer: a whole number must be met exactly, a float within 1 %, a word as it is or by its first letter.
        why: how to get there, one sentence.
    """

    text: str
    answer: int | float | str
    why: str

    def accepts(self, given: str) -> bool:
        """Whether ``given`` is right; words around a number, such as ``slot 36``, do not matter."""
        if isinstance(self.answer, str):
            return given.strip().casefold() in (self.answer.casefold(), self.answer[0].casefold())
        numbers = re.findall(r"[-+]?\d*\.?\d+(?:e[-+]?\d+)?", re.sub(r"(?<=\d)[,_](?=\d{3})", "", given))
        if len(numbers) != 1:
            return False
        tolerance = 0.01 if isinstance(self.answer, float) else 0.0
        return math.isclose(float(numbers[0]), self.answer, rel_tol=tolerance)

    @property
    def solution(self) -> str:
        return f"{self.answer:.4g}" if isinstance(self.answer, float) else str(self.answer)


@dataclass(frozen=True)
class Lesson:
    title: str
    lines: tuple[str, ...]
    question: Question
