"""Text of results: strict JSON, CSV with units in the column names."""

import csv
import io
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from pagesim.core.files import replacing
from pagesim.errors import InputError

# What the numbers of a metrics entry are, where the key does not say: by their path, the longest that fits.
_UNITS = {
    "ledger": "share",
    "sosp23": "share",
    "utilization": "share",
    "block_use": "share",
    "internal_fragmentation": "share",
    "external_fragmentation": "share",
    "external_fragmentation.extfrag_index": "",
    "latency": "s",
    "fleet.together": "share",
    "fleet.together.busy_s": "",
    "fleet.together.block_use_cv": "",
    "fleet.together.steps_a_row": "",
    "peak.token_states": "slots",
    "peak.allocated": "slots",
}

# Histograms are lists; a window of the ledger that is null has no figures of its own.
_NOT_FIGURES = ("histograms.", "ledger.", "sosp23.")


def json_text(value: object) -> str:
    """Strict JSON: NaN and infinity raise ValueError instead of reaching a reader that cannot parse them."""
    return json.dumps(value, indent=2, allow_nan=False, ensure_ascii=False) + "\n"


def write_text(path: Path, text: str) -> None:
    with replacing(path) as file:
        file.write(text)


@contextmanager
def opened(path: Path, what: str) -> Iterator[TextIO]:
    """The text of a file of a run folder; it is read under this, so that a damaged one is named."""
    try:
        with open(path, encoding="utf-8", newline="") as file:
            yield file
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}; the run folder is not whole: run the simulation again") from error
    except (ValueError, KeyError, TypeError, IndexError) as error:
        reason = error if isinstance(error, ValueError) else repr(error)
        raise InputError(f"{path}: not {what}: {reason}; run the simulation again") from error


def csv_text(document: dict) -> str:
    """One row a case, one column a figure; histograms are left to the JSON.  A null is an empty cell."""
    rows = [flat(entry) for entry in document["cases"]]
    columns = list(dict.fromkeys(name for row in rows for name in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def flat(entry: dict) -> dict[str, str | int | float | None]:
    """Every figure of an entry under its dotted path, with its unit; lists, such as a fleet's replicas, are none."""
    return {_with_unit(path): value for path, value in _leaves(entry, "")}


def _leaves(value: dict, prefix: str) -> Iterator[tuple[str, object]]:
    for key, item in value.items():
        if isinstance(item, dict):
            yield from _leaves(item, f"{prefix}{key}.")
        elif prefix not in _NOT_FIGURES and not isinstance(item, list):
            yield prefix + key, item


def _with_unit(path: str) -> str:
    fitting = [known for known in _UNITS if path == known or path.startswith(f"{known}.")]
    unit = _UNITS[max(fitting, key=len)] if fitting else ""
    return f"{path}_{unit}" if unit else path
