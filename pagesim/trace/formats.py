"""The forms of trace files that pagesim reads, told apart by their column names or keys, never by the file's name."""

import difflib
from dataclasses import dataclass, field

from pagesim.errors import TraceError

PLAIN_BLOCK_TOKENS = 16
_SHOWN_COLUMNS = 20


@dataclass(frozen=True)
class Format:
    """Which column plays which role, and in what unit.

    Attributes:
        name: what a report calls the form.
        columns: role → column name as the file spells it; roles are ``arrival, prompt, output, max_tokens, num_samples,
            beam_width, prefix_ids, prefix_block_tokens, session, turn, chat, parent, think``.
        unit_digits: a second has ``10**unit_digits`` of the arrivals' units.
        think_digits: … of the think times' units.
        may_be_clock: the arrival column may hold wall-clock text instead.
        whole_arrivals: arrivals are whole numbers in this form; a fraction shows another unit.
        hash_block_tokens: prompt tokens to one prefix id, in this form as a rule; None where only the file can tell.
    """

    name: str
    columns: dict[str, str]
    unit_digits: int = 0
    think_digits: int = 0
    may_be_clock: bool = False
    whole_arrivals: bool = False
    hash_block_tokens: int | None = None


@dataclass(frozen=True)
class _Known:
    name: str
    columns: dict[str, str]
    unit_digits: int = 0
    also: tuple[str, ...] = ()
    options: dict = field(default_factory=dict)


# The first whose columns are all there is taken, so a form stands before those it extends.
_KNOWN = (
    _Known("azure", {"arrival": "timestamp", "prompt": "contexttokens", "output": "generatedtokens"},
           options={"may_be_clock": True}),
    _Known("burstgpt-v3", {"arrival": "timestamp", "prompt": "request_tokens", "output": "response_tokens",
                           "session": "session_id"}, also=("elapsed_time", "log_type")),
    _Known("burstgpt-v1", {"arrival": "timestamp", "prompt": "request_tokens", "output": "response_tokens"},
           also=("log_type",)),
    _Known("vidur", {"arrival": "arrived_at", "prompt": "num_prefill_tokens", "output": "num_decode_tokens"}),
    _Known("vidur-lengths", {"prompt": "num_prefill_tokens", "output": "num_decode_tokens"}, also=("pd_ratio",)),
    _Known("splitwise-sim", {"arrival": "arrival_timestamp", "prompt": "prompt_size", "output": "token_size"}),
    _Known("llmservingsim", {"arrival": "arrival_time", "prompt": "input_toks", "output": "output_toks"},
           also=("queued_ts", "first_token_ts")),  # those two run on another clock and are not read
    _Known("bailian", {"arrival": "timestamp", "prompt": "input_length", "output": "output_length",
                       "prefix_ids": "hash_ids", "chat": "chat_id", "parent": "parent_chat_id"},
           options={"hash_block_tokens": 16}),
    _Known("mooncake", {"arrival": "timestamp", "prompt": "input_length", "output": "output_length",
                        "prefix_ids": "hash_ids"}, 3, options={"hash_block_tokens": 512, "whole_arrivals": True}),
    _Known("turns", {"arrival": "timestamp", "prompt": "input_length", "output": "output_length",
                     "session": "session_id", "think": "delay"}, 3),
)

_SECONDS = ("arrival_s", "arrival_time_s", "timestamp_s", "time_s", "arrival_timestamp", "arrival_time", "arrived_at",
            "timestamp")
_UNIT_DIGITS = {"ms": 3, "us": 6, "ns": 9}
_THINKS = {"think_s": 0, "think_ms": 3, "delay": 3, "delay_ms": 3}
_ARRIVALS = dict.fromkeys(_SECONDS, 0) | {
    f"{stem}_{unit}": digits for stem in ("arrival", "arrival_time", "timestamp") for unit, digits in
    _UNIT_DIGITS.items()}
_PLAIN = {
    "prompt": ("prompt_tokens", "input_tokens", "num_prompt_tokens", "prompt_len", "input_len", "prompt_length",
               "input_length", "num_prefill_tokens", "context_tokens", "contexttokens", "request_tokens", "input_toks",
               "prompt_size"),
    "output": ("output_tokens", "generated_tokens", "generatedtokens", "num_output_tokens", "completion_tokens",
               "output_len", "output_length", "completion_len", "num_decode_tokens", "response_tokens", "output_toks",
               "token_size"),
    "arrival": tuple(_ARRIVALS),
    "max_tokens": ("max_tokens", "max_output_tokens", "max_completion_tokens"),
    "num_samples": ("num_samples",),
    "beam_width": ("beam_width",),
    "prefix_ids": ("prefix_ids", "hash_ids"),
    "prefix_block_tokens": ("prefix_block_tokens", "hash_block_tokens"),
    "session": ("session", "session_id", "conversation_id"),
    "turn": ("turn",),
    "chat": ("chat_id",),
    "parent": ("parent_chat_id",),
    "think": tuple(_THINKS),
}
# What somebody may have added to another form.
_OPTIONAL = ("max_tokens", "num_samples", "beam_width", "prefix_ids", "prefix_block_tokens", "session", "turn", "think")
_WITHOUT_UNIT = {"timestamp", "input_length", "output_length"}


def detect(names: list[str], where: str) -> Format:
    """The form of a file with these columns or keys.

    Args:
        names: as the file spells them.
        where: ``file:line`` of the header or first object, for the message.

    Raises:
        TraceError: a needed column is missing, two columns play one role, an optional one is misspelt, or the unit of
            time cannot be known.
    """
    spelled = {}
    for name in names:
        if _normal(name) in spelled:
            raise TraceError(f"{where}: column {name!r} is there twice; rename or remove one")
        spelled[_normal(name)] = name
    for known in _KNOWN:
        if {*known.columns.values(), *known.also} <= spelled.keys():
            columns = _found(spelled, _OPTIONAL) | {role: spelled[name] for role, name in known.columns.items()}
            return Format(known.name, columns, known.unit_digits, _think_digits(columns), **known.options)
    return _detect_plain(spelled, where)


def _normal(name: str) -> str:
    return name.strip().lower().replace(" ", "_").replace("-", "_")


def _detect_plain(spelled: dict[str, str], where: str) -> Format:
    for role, allowed in _PLAIN.items():
        found = [repr(spelled[name]) for name in allowed if name in spelled]
        if len(found) > 1:
            raise TraceError(f"{where}: columns {' and '.join(found)} both give the {role}; keep one")
    columns = _found(spelled, tuple(_PLAIN))
    missing = [role for role in ("prompt", "output") if role not in columns]
    if missing:
        raise TraceError(_missing(missing[0], spelled, where))
    _refuse_misspelt(spelled, columns, where)
    if _WITHOUT_UNIT <= spelled.keys():
        raise TraceError(f"{where}: 'timestamp' beside 'input_length' is milliseconds in Mooncake's files and seconds "
                         "in others, and this one has no hash_ids to tell; rename it arrival_ms or arrival_s")
    unit_digits = _ARRIVALS[_normal(columns["arrival"])] if "arrival" in columns else 0
    ours = _normal(columns.get("prefix_ids", "")) == "prefix_ids"
    return Format("plain", columns, unit_digits, _think_digits(columns), "arrival" in columns and unit_digits == 0,
                  hash_block_tokens=PLAIN_BLOCK_TOKENS if ours else None)


def _think_digits(columns: dict[str, str]) -> int:
    return _THINKS.get(_normal(columns.get("think", "")), 0)


def _found(spelled: dict[str, str], roles: tuple[str, ...]) -> dict[str, str]:
    return {role: spelled[name] for role in roles for name in _PLAIN[role] if name in spelled}


def _missing(role: str, spelled: dict[str, str], where: str) -> str:
    shown = [repr(name[:40]) for name in spelled.values()]
    if len(shown) > _SHOWN_COLUMNS:
        shown[_SHOWN_COLUMNS:] = [f"and {len(shown) - _SHOWN_COLUMNS} more"]
    separator = " (is it separated by something else than commas or tabs?)" if len(shown) == 1 else ""
    return (f"{where}: no column with the {role} tokens; the columns are {', '.join(shown)}{separator}. pagesim reads "
            f"{', '.join(known.name for known in _KNOWN)} files and plain ones with the columns "
            f"arrival_s,prompt_tokens,output_tokens; for the {role} it also understands {', '.join(_PLAIN[role][1:])}")


def _refuse_misspelt(spelled: dict[str, str], columns: dict[str, str], where: str) -> None:
    """Other columns are nobody's business, but ``max_token`` was meant to be read."""
    free = [name for role, allowed in _PLAIN.items() if role not in columns for name in allowed]
    for name in spelled.keys() - {_normal(column) for column in columns.values()}:
        close = difflib.get_close_matches(name, free, n=1, cutoff=0.88)
        if close:
            raise TraceError(f"{where}: unknown column {spelled[name]!r}; did you mean {close[0]!r}?")
