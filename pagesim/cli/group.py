"""A group of commands whose help says what each does in a whole sentence."""

import typer
from typer.core import TyperGroup

_WHOLE = 10_000


class Group(TyperGroup):
    def format_commands(self, ctx: typer.Context, formatter) -> None:
        """The list of commands; summaries go on in the next line, where click would cut them off."""
        commands = [self.get_command(ctx, name) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl([(command.name, command.get_short_help_str(_WHOLE)) for command in commands])
