"""A run folder in which another experiment's run lies."""

from pathlib import Path
from typing import TYPE_CHECKING

from pagesim.errors import InputError
from pagesim.report.folder import case_folder, config_text, forget_files

if TYPE_CHECKING:
    from pagesim.config import Case


def make_room(folder: Path, cases: "tuple[Case, ...]", *, force: bool) -> None:
    """See that no case of another experiment lies in the folder; with ``force`` delete the files of a run there.

    The same experiment may run into its own folder again: its files are made anew, and nothing is lost.

    Raises:
        InputError: another experiment's run is there.
    """
    own = {case_folder(folder, case.name, len(cases)) for case in cases}
    there = {path.parent for path in (folder / "cases").glob("*/config.yaml")}
    if (folder / "config.yaml").is_file() or list(folder.glob("case-*.json")):
        there.add(folder)
    same = not there - own - {folder} and _config(folder) in (None, _text(cases))
    if same:
        return
    if not force:
        raise InputError(f"{folder}: holds another experiment's run; give another folder with -o, --force to replace "
                         "it, or --resume to add this experiment's cases to it")
    for each in there:
        forget_files(each)


def _config(folder: Path) -> str | None:
    path = folder / "config.yaml"
    return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else None


def _text(cases: "tuple[Case, ...]") -> str:
    return config_text(cases[0].resolved if len(cases) == 1 else {case.name: case.resolved for case in cases})
