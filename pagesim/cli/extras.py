"""Packages that only some commands need."""

from importlib import import_module

from pagesim.errors import MissingExtra


def require(command: str, extra: str, *packages: str) -> None:
    """Raises MissingExtra, which says what to install, where one of the packages cannot be imported."""
    try:
        for package in packages:
            import_module(package)
    except ImportError as error:
        needs = f"{command} needs {' and '.join(packages)}"
        raise MissingExtra(f"{needs} ({error}): pip install 'pagesim[{extra}]'") from None
