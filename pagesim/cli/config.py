"""``pagesim config``: check an experiment, write it out, describe its keys, start a new one."""

from pathlib import Path
from typing import Annotated

import typer

from pagesim.cli import flags
from pagesim.cli.group import Group
from pagesim.errors import ConfigError

app = typer.Typer(name="config", no_args_is_help=True, cls=Group, help="Check, write out and start experiments.")

File = Annotated[Path, typer.Argument(metavar="FILE", help="The experiment, a YAML file.")]
Overrides = Annotated[list[str], typer.Option("--set", metavar="KEY=VALUE", help=(
    "Replace one key, such as seed=1; may be repeated."))]
NewFile = Annotated[Path, typer.Argument(metavar="FILE", help="The file to write; it must not exist.")]


@app.command(epilog="Example: pagesim config validate configs/quickstart.yaml")
def validate(file: File, overrides: Overrides = []) -> None:
    """Check an experiment: all that is wrong with it at once, each thing at its place."""
    from pagesim.config import load

    cases = load(file, tuple(overrides)).cases
    print(f"{file}: valid, {len(cases)} case{'s' if len(cases) != 1 else ''}")


@app.command(epilog="Example: pagesim config expand configs/quickstart.yaml --set seed=1")
def expand(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The experiment, a YAML file, or a trace alone.")],
    model: flags.Model = None,
    gpu: flags.Gpu = None,
    kv_memory: flags.KvMemory = None,
    max_model_len: flags.MaxModelLen = None,
    from_vllm: flags.FromVllm = None,
    overrides: Overrides = [],
) -> None:
    """Write out every key of an experiment with its value, one YAML document for each setting of the sweep."""
    from pagesim.cli.console import warn
    from pagesim.config.expand import expanded
    from pagesim.config.question import asked

    said = flags.said(model, gpu, kv_memory, max_model_len, from_vllm, overrides)
    experiment, remarks = asked(file, said, need_trace=False)
    print(expanded(experiment), end="")
    warn(remarks)


@app.command(epilog="Example: pagesim config schema > pagesim.schema.json")
def schema() -> None:
    """Write the JSON Schema of an experiment, for editors."""
    import json

    from pagesim.config.schema import json_schema

    print(json.dumps(json_schema(), indent=2))


@app.command(epilog="Example: pagesim config init my.yaml")
def init(
    file: NewFile = Path("experiment.yaml"),
    template: Annotated[str | None, typer.Option("--from", metavar="NAME", help=(
        "One of the experiments that come with pagesim, and its trace beside it; --from list names them."))] = None,
) -> None:
    """Write an experiment to start from, with comments."""
    from pagesim.config import shipped
    from pagesim.config.starter import STARTER

    if template == "list":
        print("\n".join(shipped.names()))
        return
    if template is not None:
        written = shipped.copy(template, file)
        print(f"wrote {' and '.join(map(str, written))}; then: pagesim simulate {file}")
        return
    try:
        with file.open("x", encoding="utf-8") as out:
            out.write(STARTER)
    except FileExistsError:
        raise ConfigError(f"{file}: exists already and is left as it is; give another name") from None
    except OSError as error:
        raise ConfigError(f"{file}: cannot be written: {error.strerror}") from None
    print(f"wrote {file}; set trace.path in it, then: pagesim simulate {file}")
