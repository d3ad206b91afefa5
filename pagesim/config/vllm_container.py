"""A server's words out of a Kubernetes container: ``args:``, a list alone, or the YAML around them."""

import re
import shlex
import textwrap
from collections.abc import Iterator

import yaml

_SHELLS = re.compile(r"(.*/)?(ba|da|a|z)?sh")


def words_of_a_container(text: str) -> list[str]:
    """The words of ``command`` and ``args``, those for a shell taken apart; none where ``text`` is not such YAML.

    Raises:
        ValueError: a quotation that does not close, in words for a shell.
    """
    if not re.match(r"\s*(-\s|\[|[A-Za-z]+:(\s|$))", text):
        return []
    try:
        data = yaml.safe_load(textwrap.dedent(text))
    except yaml.YAMLError:
        return []
    lists = list(_lists(data))
    for command, args in lists:
        words = [_word(word) for word in (*command, *args)]
        if words and _SHELLS.fullmatch(words[0]):
            return shlex.split(words[-1].replace("\\\n", " "))
        if any("vllm" in word or word.startswith("-") for word in words):
            return words
    return []


def _lists(data: object) -> Iterator[tuple[list, list]]:
    """Every ``command`` and ``args`` in the data, in its order; a list of plain words is args by itself."""
    if isinstance(data, list):
        if data and not any(isinstance(each, dict | list) for each in data):
            yield [], data
            return
        for each in data:
            yield from _lists(each)
    elif isinstance(data, dict):
        command, args = (value if isinstance(value := data.get(key), list) else [] for key in ("command", "args"))
        if command or args:
            yield command, args
            return
        for each in data.values():
            yield from _lists(each)


def _word(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
