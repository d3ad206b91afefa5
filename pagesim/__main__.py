"""``python -m pagesim``."""

from pagesim.cli.main import main

main()
