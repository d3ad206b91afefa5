"""The run folder: what a run was, where it ran, what came out.

    DIR/
    ├── environment.json     versions, machine, seeds, the trace's sha256, time taken
    ├── metrics.json         every case's figures; byte-identical from run to run
    ├── config.yaml          the case as it was resolved: running it gives these figures again
    ├── case-<key>.json      its figures, and the sha256 of its other files
    ├── requests.csv         one row a request
    ├── timeline.csv         one row for some consecutive steps
    ├── events.json          who owned which slots in every step, or in the steps around the peak of a long run
    └── snapshot-<moment>.npz   block tables, where simulate --snapshot asked for them

With several cases the last six lie in a folder for each, ``DIR/cases/<name>/``, and ``DIR/config.yaml`` has the
resolved cases by name.  ``<key>`` is the address of the case's content, so that ``--resume`` takes a result only for
exactly the case that made it, and only where its files are whole.  Of a fleet, timeline.csv and events.json are those
of its first replica.
"""

import hashlib
import json
from pathlib import Path
from urllib.parse import quote_plus

import numpy as np

from pagesim.core.files import forget_halves, replacing
from pagesim.engine.ownership import Ownership
from pagesim.engine.result import Result
from pagesim.errors import InputError
from pagesim.report.events import events_json
from pagesim.report.files import json_text, opened, write_text
from pagesim.report.requests_csv import request_text
from pagesim.report.timeline_csv import timeline_lines
from pagesim.trace.source_file import sha256
from pagesim.trace.trace import Trace

SCHEMA_VERSION = 1
_LONGEST_NAME = 200  # file systems take 255 bytes
_CASE_FILES = ("config.yaml", "requests.csv", "timeline.csv", "events.json")
FILES = ("environment.json", "metrics.json", *_CASE_FILES)


def case_folder(root: Path, name: str, num_cases: int) -> Path:
    """Where a case's files lie: in ``root`` if its experiment has no other, else in a folder named after it."""
    if num_cases == 1:
        return root
    quoted = quote_plus(name, safe="=,")
    if len(quoted) > _LONGEST_NAME:
        quoted = f"{quoted[:_LONGEST_NAME]}~{hashlib.sha256(quoted.encode()).hexdigest()[:16]}"
    return root / "cases" / quoted


def config_text(resolved: dict) -> str:
    import yaml

    return yaml.safe_dump(resolved, sort_keys=False, allow_unicode=True, width=120)


def resolved_config(path: Path) -> dict:
    """The case as it was resolved.

    Raises:
        InputError: the file is missing or damaged.
    """
    import yaml

    with opened(path, "the config of a case") as file:
        try:
            resolved = yaml.load(file, getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        except yaml.YAMLError as error:
            raise ValueError(str(error)) from error
        if not isinstance(resolved, dict) or "trace" not in resolved:
            raise ValueError("no mapping with a trace in it")
        return resolved


def write_case(folder: Path, key: str, resolved: dict, entry: dict, trace: Trace, result: Result,
               recorded: Ownership, served_by: np.ndarray | None = None) -> None:
    """Write a finished case; its JSON last, because its presence says that the rest is complete.

    Of a fleet, ``served_by`` is the replica of each request, and ``recorded`` the first replica's.
    """
    folder.mkdir(parents=True, exist_ok=True)
    forget_case(folder)
    write_text(folder / "config.yaml", config_text(resolved))
    with replacing(folder / "requests.csv") as file:
        file.writelines(request_text(trace, result, served_by))
    with replacing(folder / "timeline.csv") as file:
        file.writelines(timeline_lines(result.timeline, result.capacity_slots))
    write_text(folder / "events.json", events_json(recorded))
    digests = {name: sha256(folder / name) for name in _CASE_FILES}
    write_text(folder / f"case-{key}.json", json_text({"figures": entry, "sha256": digests}))


def forget_case(folder: Path) -> None:
    """Delete an older case's figures and tables, so that they do not pass for those of the files written next."""
    for pattern in ("case-*.json", "snapshot-*.npz"):
        for old in folder.glob(pattern):
            old.unlink(missing_ok=True)  # another run into the same folder may be as far
    forget_halves(folder)


def forget_files(folder: Path) -> None:
    """Delete what a run wrote into this folder, and the folder where nothing else is in it."""
    forget_case(folder)
    for name in FILES:
        (folder / name).unlink(missing_ok=True)
    if not any(folder.iterdir()):
        folder.rmdir()


def finished_case(folder: Path, key: str) -> dict | None:
    """The figures of a case that a run before this one finished, or None; also where a file is missing or damaged."""
    try:
        case = json.loads((folder / f"case-{key}.json").read_text(encoding="utf-8"))
        whole = all(sha256(folder / name) == case["sha256"][name] for name in _CASE_FILES)
        return case["figures"] if whole else None
    except (OSError, ValueError, KeyError, TypeError):  # ValueError: of the JSON, or a file that cannot be opened
        return None


def read_document(run: Path) -> dict:
    """The figures of a run, given its folder or its metrics.json.

    Raises:
        InputError: there is no run, it is no metrics.json, or it is one of another version.
    """
    path = run / "metrics.json" if run.is_dir() else run
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(
            f"{path}: {error.strerror}; a run folder is what 'pagesim simulate CONFIG -o DIR' writes") from error
    except ValueError as error:
        raise InputError(f"{path}: not the metrics.json of a run: {error}") from error
    found = document.get("schema_version") if isinstance(document, dict) else None
    if found != SCHEMA_VERSION:
        raise InputError(
            f"{path}: schema_version is {found}, this pagesim reads {SCHEMA_VERSION}; run the simulation again")
    if "cases" not in document or "failed" not in document:
        raise InputError(f"{path}: not the metrics.json of a run: it has no cases")
    return document
