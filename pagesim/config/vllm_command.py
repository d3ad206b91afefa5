"""The words of a vLLM command line → its flags and their values, as vLLM's own parser takes them."""

import re
import shlex
from collections.abc import Iterator
from difflib import get_close_matches
from typing import NamedTuple

from pagesim.config.vllm_flags import (
    IN_GIB, KEYS, OF_POOLS, PASSED_OVER, PASSED_OVER_SWITCHES, PASSED_OVER_WITH_VALUES, PREFIX_CACHES, QUANTIZATION,
    REFUSED, REFUSED_SWITCHES, SWITCHES)
from pagesim.config.vllm_container import words_of_a_container
from pagesim.errors import ConfigError

_TAKEN = (*KEYS, *IN_GIB, *SWITCHES, *OF_POOLS, *PREFIX_CACHES)
_WITHOUT_VALUE = SWITCHES.keys() | PREFIX_CACHES.keys() | PASSED_OVER_SWITCHES | REFUSED_SWITCHES
_EVERY = (*_TAKEN, *QUANTIZATION, *REFUSED, *PASSED_OVER,
          *(f"no-{flag}" for flag in PASSED_OVER_SWITCHES | REFUSED_SWITCHES))
_IMAGE = re.compile(r"(.*/)?vllm-openai([:@].*)?")   # of docker run; what follows are its flags


class Flag(NamedTuple):
    """A flag by its full name, with its dashes, and its value, None without one."""

    name: str
    dashes: str
    value: str | None

    @property
    def label(self) -> str:
        return " ".join(filter(None, ("--from-vllm", self.dashes + self.name * bool(self.dashes), self.value)))


def flags_of(command: str) -> Iterator[Flag]:
    """The flags of a command line as a shell takes it, after ``serve``, the module or the image; MODEL is ``model``.

    Kubernetes' ``args:``, or what they stand in, are such a line too.

    Raises:
        ConfigError: a flag that is not known here, or without its value; a word that belongs to none.
    """
    try:
        words = words_of_a_container(command) or shlex.split(command.replace("\\\n", " "))  # a line of a shell goes on
    except ValueError as error:
        raise ConfigError(f"--from-vllm: {error} in {command!r}") from None
    begins = [at for at, word in enumerate(words, 1)
              if word == "serve" or word.startswith("vllm.entrypoints.") or _IMAGE.fullmatch(word)]
    words = words[begins[0] :] if begins else words
    model = False
    while words:
        word = words.pop(0)
        if _is_flag(word):
            yield _flag(word, words)
        elif model:
            raise ConfigError(f"--from-vllm: {word!r} belongs to no flag; quote a value that has spaces")
        else:
            model = True
            yield Flag("model", "", word)


def _flag(word: str, rest: list[str]) -> Flag:
    """The flag that ``word`` begins; its value, or values, are taken off ``rest``."""
    written, equals, value = word.lstrip("-").partition("=")
    name, dashes = _full_name(written), word[:len(word) - len(word.lstrip("-"))]
    if re.fullmatch(r"O\d", written):
        return Flag(name, dashes, None)
    if name.removeprefix("no-") in _WITHOUT_VALUE or name in _WITHOUT_VALUE:
        if not equals and rest and rest[0].lower() in ("true", "false"):   # as vLLM took it for years
            equals, value = "=", rest.pop(0)
        if equals and value.lower() not in ("true", "false"):
            raise ConfigError(f"--from-vllm: {dashes}{name} takes no value, got {value!r}")
        if value.lower() == "false":
            name = name.removeprefix("no-") if name.startswith("no-") else f"no-{name}"
        return Flag(name, dashes, None)
    if name in PASSED_OVER_WITH_VALUES:
        while rest and not _is_flag(rest[0]):
            rest.pop(0)
        return Flag(name, dashes, value)
    if not equals and (not rest or _is_flag(rest[0])):
        raise ConfigError(f"--from-vllm: {dashes}{name} needs a value")
    return Flag(name, dashes, value if equals else rest.pop(0))


def _is_flag(word: str) -> bool:
    return word.startswith("-") and not re.fullmatch(r"-\d+(\.\d+)?", word)


def _full_name(written: str) -> str:
    """A flag's name: ``_`` is ``-``, a dot begins a key of its JSON, and what only one flag begins with is enough."""
    name = written.partition(".")[0].replace("_", "-")
    if name in _EVERY:
        return name
    if re.fullmatch(r"O\d", name):
        return "O"
    begun = [flag for flag in _EVERY if flag.startswith(name)]
    if len(begun) == 1:
        return begun[0]
    near = get_close_matches(name, _EVERY, n=1)
    hint = f"did you mean --{near[0]}?" if near else f"taken are --{', --'.join(_TAKEN)}"
    raise ConfigError(f"--from-vllm: unknown flag --{name}; {hint}")
