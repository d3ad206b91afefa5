"""The experiments that come with pagesim, each with its trace: installed beside it, or in a copy of the sources."""

from importlib.metadata import PackageNotFoundError, files
from pathlib import Path

from pagesim.errors import ConfigError

_SOURCES = Path(__file__).parents[2]
_TRACES = "../traces/"  # as configs/*.yaml name them


def names() -> list[str]:
    """Names of the experiments, without their ending."""
    return sorted(_configs())


def copy(name: str, file: Path) -> list[Path]:
    """Write the experiment ``name`` to ``file`` and its trace beside it; returns the files written.

    Raises:
        ConfigError: there is no such experiment, or a file of another content is there already; nothing is written.
    """
    configs = _configs()
    if name not in configs:
        raise ConfigError(f"there is no experiment {name!r} to start from; there are {', '.join(names())}")
    text = configs[name].read_text(encoding="utf-8")
    traces = sorted({part.split(",")[0].split("}")[0].strip() for part in text.split(_TRACES)[1:]})
    contents = {file: text.replace(_TRACES, "").encode()}
    contents |= {file.parent / trace: (configs[name].parents[1] / "traces" / trace).read_bytes() for trace in traces}
    for path, content in contents.items():
        if path.exists() and (path == file or path.read_bytes() != content):
            raise ConfigError(f"{path}: exists already and is left as it is; give a name in another folder")
    for path, content in contents.items():
        path.write_bytes(content)
    return list(contents)


def _configs() -> dict[str, Path]:
    """The YAML files by name: of the sources that this module is one of, or else of the installed package."""
    found = list(_SOURCES.glob("configs/*.yaml")) if (_SOURCES / "pyproject.toml").is_file() else _installed()
    return {path.stem: path for path in found}


def _installed() -> list[Path]:
    try:
        return [Path(path.locate()) for path in files("pagesim") or ()
                if path.parent.name == "configs" and path.suffix == ".yaml"]
    except PackageNotFoundError:
        return []
