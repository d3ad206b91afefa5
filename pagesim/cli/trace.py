"""``pagesim trace``: describe a trace, write it in the plain form, or draw one."""

import json
import sys
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pagesim.cli.console import width, wrapped
from pagesim.cli.overwriting import Force, check_free
from pagesim.cli.group import Group
from pagesim.errors import InputError

if TYPE_CHECKING:
    from pagesim.trace.synthetic import Bursty, Steady
    from pagesim.trace.trace import Trace

app = typer.Typer(name="trace", no_args_is_help=True, cls=Group, help=(
    "Inspect, convert and generate traces of request lengths; what a prefix cache would find in one."))

Input = Annotated[Path, typer.Argument(metavar="FILE", help=(
    "Azure, BurstGPT, Mooncake, Qwen-Bailian, vidur, splitwise-sim, LLMServingSim or plain CSV/JSON lines, also "
    "gzipped; told by its columns, not its name."))]
Output = Annotated[Path, typer.Argument(metavar="OUT", help="The file to write: .csv or .jsonl, with .gz gzipped.")]
Limit = Annotated[int | None, typer.Option(min=1, help="Keep the first N requests of the file.")]
Strict = Annotated[bool, typer.Option("--strict", help=(
    "A row with 0 prompt or 0 output tokens is an error, not a dropped row."))]
BlockTokens = Annotated[int | None, typer.Option("--prefix-block-tokens", min=1, help=(
    "Prompt tokens to one prefix id, where ids and lengths leave it open."))]
Seed = Annotated[int, typer.Option(min=0, help="Seed of what is drawn.")]
Rate = Annotated[float | None, typer.Option(help="Mean requests per second of drawn arrivals.")]
Cv = Annotated[float | None, typer.Option(help=(
    "Coefficient of variation of gamma's intervals: 1 is Poisson, more is burstier."))]


class Arrivals(str, Enum):
    """How ``convert`` gives requests their times."""

    trace = "trace"
    poisson = "poisson"
    gamma = "gamma"
    saturate = "saturate"


class Process(str, Enum):
    """What ``generate`` draws arrivals from."""

    none = "none"
    poisson = "poisson"
    gamma = "gamma"
    bursty = "bursty"


@app.command("inspect", epilog="Example: pagesim trace inspect traces/azure_conv_like.csv")
def inspect_file(
    file: Input,
    limit: Limit = None,
    strict: Strict = False,
    prefix_block_tokens: BlockTokens = None,
    block_size: Annotated[int, typer.Option(min=1, help="Slots in a block, for the sums of blocks.")] = 16,
    max_model_len: Annotated[list[int], typer.Option(min=1, help=(
        "Count the requests that fit this length; may be repeated."))] = [],
    as_json: Annotated[bool, typer.Option("--json", help="Write one JSON object.")] = False,
) -> None:
    """What was read, kept and dropped, rates, lengths, blocks, and prefix reuse where the file has ids."""
    from pagesim.cli.trace_summary import lines
    from pagesim.trace import read_trace
    from pagesim.trace.inspect import num_accepted, summarize

    trace = read_trace(file, limit=limit, strict=strict, prefix_block_tokens=prefix_block_tokens)
    summary = summarize(trace, block_size)
    accepted = {length: num_accepted(trace, length) for length in max_model_len}
    if as_json:
        everything = summary.as_dict() | {"accepted": accepted}
        typer.echo(json.dumps(everything, indent=2, allow_nan=False))
    else:
        for name, text in lines(summary, accepted):
            typer.echo(wrapped(f"{name:<16}{text}", width(sys.stdout), indent=16))


@app.command("reuse", epilog="Example: pagesim trace reuse traces/mooncake_like.jsonl --model llama-3.1-8b")
def reuse_file(
    file: Input,
    limit: Limit = None,
    strict: Strict = False,
    prefix_block_tokens: BlockTokens = None,
    blocks: Annotated[list[int], typer.Option(min=1, help=(
        "Size of a cache in blocks of the trace; may be repeated. Without it: doublings up to all there is to hit."
    ))] = [],
    model: Annotated[str | None, typer.Option(help=(
        "Sizes in bytes of this model's KV too: a name in the catalogue, or the path of a config.json."))] = None,
    plot: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw the curve: .png, .svg or .pdf.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Write one JSON object.")] = False,
) -> None:
    """What a prefix cache would hit, by its size: LRU, the optimum, and no limit; without simulating.

    Requests come one by one: that running ones hold their blocks, and what generated tokens take and give, is left out.
    """
    from pagesim.cli.console import print_tables
    from pagesim.cli.extras import require
    from pagesim.report import reuse_curve
    from pagesim.trace import read_trace
    from pagesim.trace.reuse import LEFT_OUT, reuse, sizes

    if plot:
        require("trace reuse --plot", "report", "matplotlib")
    trace = read_trace(file, limit=limit, strict=strict, prefix_block_tokens=prefix_block_tokens)
    kv_bytes_per_token = None if model is None else _kv_bytes_per_token(model, trace)
    found = reuse(trace)
    curve = reuse_curve.points(found, blocks or sizes(found), kv_bytes_per_token)
    if as_json:
        typer.echo(json.dumps(reuse_curve.document(found, trace.source, curve), indent=2, allow_nan=False))
    else:
        typer.echo(reuse_curve.headline(found) + "\n")
        print_tables([reuse_curve.sheet(found, curve)])
        typer.echo(LEFT_OUT)
    if plot:
        from pagesim.report.plots import save

        save(reuse_curve.figure(found, kv_bytes_per_token), plot)
        typer.echo(f"written to {plot}", err=True)


def _kv_bytes_per_token(name: str, trace: "Trace") -> int:
    from pagesim.catalog import find_model, kv_bytes_per_token

    longest = int((trace.prompt_tokens.astype("int64") + trace.output_tokens).max())
    return kv_bytes_per_token(find_model(name), "auto", 1, longest)


@app.command("convert", epilog="Example: pagesim trace convert lengths.jsonl trace.csv --arrivals poisson --rate 5")
def convert_file(
    file: Input,
    out: Output,
    limit: Limit = None,
    strict: Strict = False,
    prefix_block_tokens: BlockTokens = None,
    arrivals: Annotated[Arrivals, typer.Option(help=(
        "Keep the file's times, draw others (the only way for a file with lengths only), or let all come at 0."
    ))] = Arrivals.trace,
    rate: Rate = None,
    cv: Cv = None,
    speedup: Annotated[float, typer.Option(help="2 is twice the rate: intervals are divided by it.")] = 1.0,
    seed: Seed = 0,
    force: Force = False,
) -> None:
    """Write a trace in the plain form: arrival_s,prompt_tokens,output_tokens and what else the file has."""
    from pagesim.cli.trace_summary import reasons
    from pagesim.trace import read_trace
    from pagesim.trace.arrivals import with_arrivals
    from pagesim.trace.write import write_trace

    check_free(out, force=force)
    trace = read_trace(file, limit=limit, strict=strict, prefix_block_tokens=prefix_block_tokens)
    if trace.arrival_s is not None or arrivals is not Arrivals.trace or rate is not None or speedup != 1:
        trace = with_arrivals(trace, arrivals.value, rate=rate, cv=cv, speedup=speedup, seed=seed)
    write_trace(trace, out)
    source = trace.source
    typer.echo(f"{file}: read {source.read:,} rows as {source.format}, dropped {reasons(source.dropped)}; "
               f"wrote {len(trace):,} to {out}", err=True)


@app.command("generate", epilog="Example: pagesim trace generate trace.csv -n 1000 --rate 5 "
                                "--prompt lognormal:mean=182,sigma=1.05 --output gamma:mean=345,cv=0.88")
def generate_file(
    out: Output,
    requests: Annotated[int, typer.Option("-n", "--requests", min=1, help="Rows.")],
    prompt: Annotated[str, typer.Option(metavar="LENGTHS", help=(
        "Prompt tokens: lognormal:mean=182,sigma=1.05, gamma:mean=345,cv=0.88, quantiles:0=1,0.5=100,1=2000 or "
        "constant:tokens=9."))],
    output: Annotated[str, typer.Option(metavar="LENGTHS", help="Output tokens, in the same way.")],
    arrivals: Annotated[Process, typer.Option(help="What times are drawn from; none: lengths only.")] = Process.poisson,
    rate: Rate = None,
    cv: Cv = None,
    burst_s: Annotated[float | None, typer.Option(help="bursty: mean length of a burst.")] = None,
    quiet_s: Annotated[float | None, typer.Option(help="bursty: mean quiet between two bursts.")] = None,
    max_prompt_tokens: Annotated[int | None, typer.Option(min=1, help="Longer prompts are drawn again.")] = None,
    max_output_tokens: Annotated[int | None, typer.Option(min=1, help="Longer outputs are drawn again.")] = None,
    max_total_tokens: Annotated[int | None, typer.Option(min=2, help="Longer requests are drawn again.")] = None,
    max_tokens: Annotated[int | None, typer.Option(min=1, help=(
        "A column with this output limit; longer outputs are drawn again."))] = None,
    samples: Annotated[int | None, typer.Option(min=1, help="A column with this many parallel samples.")] = None,
    samples_share: Annotated[float, typer.Option(min=0, max=1, help=(
        "Share of the requests with that many; the others have one."))] = 1.0,
    prefix_depth: Annotated[int | None, typer.Option(min=1, help=(
        "A column of prefix ids: prompts begin with the texts on a path of this depth in a tree."))] = None,
    prefix_fanout: Annotated[int, typer.Option(min=1, help="Roots of the tree, and children of every node.")] = 4,
    prefix_node_tokens: Annotated[int, typer.Option(min=1, help="Length of each of the tree's texts.")] = 512,
    system_prompts: Annotated[int, typer.Option(min=0, help=(
        "Prompts begin with one of so many system prompts; --prompt is what follows."))] = 0,
    system_tokens: Annotated[int, typer.Option(min=0, help="Length of a system prompt.")] = 0,
    documents: Annotated[int, typer.Option(min=0, help="… then with one of so many documents.")] = 0,
    document_tokens: Annotated[int, typer.Option(min=0, help="Length of a document.")] = 0,
    turns: Annotated[float | None, typer.Option(min=1, help=(
        "Chats of so many turns in the mean (geometric); --prompt is what a turn adds to all before it."))] = None,
    think_s: Annotated[float | None, typer.Option(help=(
        "Mean time from the end of a turn to the next (exponential)."))] = None,
    prefix_block_tokens: Annotated[int, typer.Option(min=1, help="Prompt tokens to one prefix id.")] = 16,
    prefix_share: Annotated[float, typer.Option(min=0, max=1, help=(
        "Share of the requests that begin with a text of the tree."))] = 1.0,
    seed: Seed = 0,
    force: Force = False,
) -> None:
    """Draw a trace; the same options and seed write the same bytes."""
    from pagesim.trace.conversations import Chats, Texts
    from pagesim.trace.lengths import parse_lengths
    from pagesim.trace.synthetic import Bounds, PrefixTree, Samples, generate
    from pagesim.trace.write import write_trace

    check_free(out, force=force)
    if (turns is None) != (think_s is None):
        raise InputError("chats need both --turns and --think-s")
    texts = Texts(system_prompts, system_tokens, documents, document_tokens)
    prefixes = None
    if prefix_depth:
        prefixes = PrefixTree(prefix_depth, prefix_fanout, prefix_node_tokens, prefix_block_tokens, prefix_share)
    trace = generate(
        requests, parse_lengths(prompt), parse_lengths(output), arrivals=_process(arrivals, rate, cv, burst_s, quiet_s),
        bounds=Bounds(max_prompt_tokens, max_output_tokens, max_total_tokens), max_tokens=max_tokens, prefixes=prefixes,
        samples=samples and Samples(samples, samples_share), texts=texts if texts.tokens else None,
        chats=None if turns is None else Chats(turns, think_s), block_tokens=prefix_block_tokens, seed=seed)
    write_trace(trace, out)
    typer.echo(f"wrote {len(trace):,} requests to {out}; 'pagesim trace inspect {out}' describes them", err=True)


def _process(kind: Process, rate: float | None, cv: float | None, burst_s: float | None,
             quiet_s: float | None) -> "Steady | Bursty | None":
    from pagesim.trace.synthetic import Bursty, Steady

    given = {"--rate": rate, "--cv": cv, "--burst-s": burst_s, "--quiet-s": quiet_s}
    needed = {Process.none: [], Process.poisson: ["--rate"], Process.gamma: ["--rate", "--cv"],
              Process.bursty: ["--rate", "--burst-s", "--quiet-s"]}[kind]
    for option, value in given.items():
        if (value is not None) != (option in needed):
            raise InputError(f"--arrivals {kind.value} {'needs' if option in needed else 'has no'} {option}")
    if kind is Process.none:
        return None
    if kind is Process.bursty:
        return Bursty(rate, on_s=burst_s, off_s=quiet_s)
    return Steady(rate, 1.0 if kind is Process.poisson else cv)
