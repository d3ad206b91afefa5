"""Floor 7: the typer commands, each a thin shell over a function that returns a value."""
