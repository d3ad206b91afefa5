"""``pagesim explain``: lessons on real numbers, each with a question whose answer is checked."""

import os
import sys
import textwrap
from typing import TYPE_CHECKING, Annotated

import typer

from pagesim.cli.extras import require
from pagesim.cli.group import Group
from pagesim.errors import InputError

if TYPE_CHECKING:
    from pagesim.explain.lesson import Lesson, Question

app = typer.Typer(name="explain", no_args_is_help=True, cls=Group,
                  help="Short lessons on real numbers, each with a question.")

_TRIES = 3

Answer = Annotated[str | None, typer.Option("--answer", metavar="X", help=(
    "Check this answer instead of asking; exit 1 where it is wrong."))]
NoAsk = Annotated[bool, typer.Option("--no-ask", help="Show the question and stop.  So it is off a terminal too.")]
BlockSize = Annotated[int, typer.Option(min=1, help="Slots in a block.")]


@app.command(epilog="Example: pagesim explain tokens --tokens 50 --block-size 16")
def tokens(
    num_tokens: Annotated[int, typer.Option("--tokens", min=1, help="Tokens of the sequence.")] = 50,
    block_size: BlockSize = 16, answer: Answer = None, no_ask: NoAsk = False,
) -> None:
    """A sequence is cut into blocks, mapped, and stored: the slot of every token."""
    from pagesim.explain.tokens import tokens

    _teach("tokens", tokens(num_tokens, block_size), answer, no_ask=no_ask)


@app.command(epilog="Example: pagesim explain translate 7,2,15 20 --answer 36")
def translate(
    table: Annotated[str, typer.Argument(metavar="TABLE", help="Physical blocks in logical order.")] = "7,2,15",
    token: Annotated[int, typer.Argument(metavar="TOKEN", help="Counted from 0.")] = 20,
    block_size: BlockSize = 16, answer: Answer = None, no_ask: NoAsk = False,
) -> None:
    """From a token's number through a block table to its slot."""
    from pagesim.explain.translate import translate

    _teach("translate", translate(_block_ids(table), token, block_size), answer, no_ask=no_ask)


@app.command(epilog="Example: pagesim explain waste --no-ask")
def waste(answer: Answer = None, no_ask: NoAsk = False) -> None:
    """Internal fragmentation: 2,048 slots reserved, 200 used."""
    _run_uncompiled()
    from pagesim.explain.waste import waste

    _teach("waste", waste(), answer, no_ask=no_ask)


@app.command(epilog="Example: pagesim explain growth --no-ask")
def growth(answer: Answer = None, no_ask: NoAsk = False) -> None:
    """A region that grows is copied, and leaves a hole."""
    _run_uncompiled()
    from pagesim.explain.growth import growth

    _teach("growth", growth(), answer, no_ask=no_ask)


@app.command("block-size", epilog="Example: pagesim explain block-size --no-ask")
def block_size(answer: Answer = None, no_ask: NoAsk = False) -> None:
    """What a large block costs, and what a small one."""
    _run_uncompiled()
    from pagesim.explain.block_size import block_size

    _teach("block-size", block_size(), answer, no_ask=no_ask)


@app.command(epilog="Example: pagesim explain holes --no-ask")
def holes(answer: Answer = None, no_ask: NoAsk = False) -> None:
    """Why 1.5 GiB do not fit although 3.5 GiB are free."""
    _run_uncompiled()
    from pagesim.explain.holes import holes

    _teach("holes", holes(), answer, no_ask=no_ask)


@app.command(epilog="Example: pagesim explain ae --no-ask")
def ae(answer: Answer = None, no_ask: NoAsk = False) -> None:
    """A and C leave, E comes: one region refuses, blocks accept."""
    _run_uncompiled()
    from pagesim.explain.ae import ae

    _teach("ae", ae(), answer, no_ask=no_ask)


@app.command(epilog="Example: pagesim explain hit --no-ask")
def hit(answer: Answer = None, no_ask: NoAsk = False) -> None:
    """A prefix hit, from the lookup of a prompt to the block table."""
    _run_uncompiled()
    from pagesim.explain.hit import hit

    _teach("hit", hit(), answer, no_ask=no_ask)


@app.command(epilog="Example: pagesim explain evict --no-ask")
def evict(answer: Answer = None, no_ask: NoAsk = False) -> None:
    """Which cached block goes first when memory is needed, and why."""
    _run_uncompiled()
    from pagesim.explain.evict import evict

    _teach("evict", evict(), answer, no_ask=no_ask)


@app.command(epilog="Example: pagesim explain softmax --no-ask")
def softmax(answer: Answer = None, no_ask: NoAsk = False) -> None:
    """Attention block by block gives what one pass gives: m, ℓ and O at each block."""
    from pagesim.explain.softmax import softmax

    _teach("softmax", softmax(), answer, no_ask=no_ask)


@app.command(epilog="Example: pagesim explain corrupt --no-ask")
def corrupt(answer: Answer = None, no_ask: NoAsk = False) -> None:
    """One wrong entry in a block table, through the real kernel: whose outputs change?"""
    # Triton reads this when it is imported; the lesson is small and needs no GPU.
    os.environ["TRITON_INTERPRET"] = "1"
    require("explain corrupt", "kernel", "torch", "triton")
    from pagesim.explain.corrupt import corrupt

    _teach("corrupt", corrupt(), answer, no_ask=no_ask)


def _run_uncompiled() -> None:
    """The engine as plain Python: a lesson has a dozen steps, compiling takes many seconds."""
    os.environ.setdefault("NUMBA_DISABLE_JIT", "1")


def _block_ids(text: str) -> list[int]:
    ids = text.strip().strip("[]").replace(",", " ").split()
    if not ids or not all(each.isdecimal() for each in ids):
        raise InputError(f"TABLE must be block ids with commas between them, such as 7,2,15; got {text!r}")
    return [int(each) for each in ids]


def _teach(name: str, lesson: "Lesson", answer: str | None, *, no_ask: bool) -> None:
    print("\n".join([lesson.title, "", *lesson.lines, "", _wrapped(lesson.question.text)]), flush=True)
    if answer is not None:
        raise typer.Exit(0 if _judge(lesson.question, answer) else 1)
    if no_ask or not (sys.stdin.isatty() and sys.stdout.isatty()):
        print(f"To check your answer: pagesim explain {name} --answer X")
        return
    raise typer.Exit(_ask(lesson.question))


def _judge(question: "Question", given: str) -> bool:
    right = question.accepts(given)
    verdict = "Right" if right else f"Not so; the answer is {question.solution}"
    print(_wrapped(f"{verdict}: {question.why}."))
    return right


def _wrapped(text: str) -> str:
    return textwrap.fill(text, 80, break_on_hyphens=False)


def _ask(question: "Question") -> int:
    """Ask up to three times; the exit code.  An empty answer gives up, and is no mistake."""
    for left in reversed(range(_TRIES)):
        try:
            given = input("> ")
        except EOFError:
            given = ""
        if not given.strip():
            print(_wrapped(f"The answer is {question.solution}: {question.why}."))
            return 0
        if left == 0 or question.accepts(given):
            return 0 if _judge(question, given) else 1
        print("No.  Once more? (Enter shows the answer)")
    return 1
