"""What ``pagesim kernel`` says: the lines above, the table, JSON."""

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from pagesim.core.blocktables import BlockTables
    from pagesim.kernels.harness.contents import Model
    from pagesim.kernels.harness.corruption import Corruption
    from pagesim.kernels.harness.replay import Row
    from pagesim.kernels.harness.speed import Speed


@dataclass(frozen=True)
class Outcome:
    """What was found; sequences are named by their places in the whole tables.

    Attributes:
        origin: what the tables say of the run that they come from.
        snapshot: the file that they were read from; None where they were simulated.
        rows: of all steps.
        left_out: what the model's attention does besides, in words.
    """

    origin: dict
    snapshot: "Path | None"
    rows: "list[Row]"
    speed: "Speed | None"
    corruption: "Corruption | None"
    left_out: list[str]

    @property
    def passed(self) -> bool:
        return all(row.verdict.passed for row in self.rows)


def headlines(tables: "list[BlockTables]", chosen: "list[BlockTables]", snapshot: "Path | None", model: "Model",
              device: str) -> list[str]:
    first, taken = tables[0], chosen[0]
    origin = first.origin
    came = "simulated" if snapshot is None else f"read from {snapshot}"
    if "case" in origin:
        came = f"{origin['case']}: step {origin['step']:,} at {origin['time_s']:,.3f} s ({origin['moment']}), {came}"
    lines = [came]
    shared = f", some shared: {len(set(first.block_ids.tolist())):,} different ones" if first.shared else ""
    lines.append(f"{first.num_seqs:,} sequences, {int(first.lengths.sum()):,} tokens in {len(first.block_ids):,} "
                 f"blocks of {first.block_size}{shared}; pool of {first.num_blocks:,} blocks")
    if taken is not first:
        how = "evenly over the running order" if len(tables) == 1 else "the first of each step"
        lines.append(f"taken of these: {taken.num_seqs}, {how} ({int(taken.lengths.sum()):,} tokens); their blocks "
                     f"renumbered in order into a pool of {taken.num_blocks:,}")
    name = f"{origin['model']['name']}: " if origin.get("model") else ""
    latent = f" with a latent of {model.latent_dim}" if model.latent_dim else ""
    lines.append(f"{name}{model.num_q_heads}/{model.num_kv_heads} heads of {model.head_dim}{latent}, "
                 f"layers: {model.layers}, {str(model.dtype)[6:]}, cache {str(model.cache_dtype)[6:]}, {model.layout}")
    if device == "cpu":
        lines.append("on the CPU the kernels run in Triton's interpreter: right or wrong shows, not how fast")
    return lines


_COLUMNS = ("step", "kernel", "layer", "sequences", "tokens", "rows", "mean error", "worst", "at sequence, query, head",
            "allowed", "µs", "GB/s", "of read ceiling", "")


def show(outcome: Outcome, *, json: bool) -> None:
    if json:
        print(_document(outcome))
        return
    from pagesim.cli.console import print_tables
    from pagesim.report.tables import Sheet

    print_tables([Sheet("", _COLUMNS, tuple(_cells(row, outcome.speed) for row in outcome.rows), num_keys=3)])
    if outcome.corruption is not None:
        print("\n".join(_corruption_lines(outcome.corruption)))
    if outcome.left_out:
        print(f"right and wrong are of plain causal attention, without {outcome.origin['model']['name']}'s "
              f"{', '.join(outcome.left_out)}")
    wrong = sum(row.verdict.num_wrong for row in outcome.rows)
    if not outcome.passed:
        print(f"pagesim: {wrong} rows differ from the reference", file=sys.stderr)


def _cells(row: "Row", speed: "Speed | None") -> tuple[str, ...]:
    verdict = row.verdict
    timed = speed is not None and row.kernel.startswith("decode") and row.layer == 0
    times = (f"{speed.times.median_us:.1f}", f"{speed.gb_per_s:,.0f}",
             f"{100 * speed.ceiling_share:.1f} %") if timed else ("–",) * 3
    return ("–" if row.step is None else f"{row.step:,}", row.kernel, str(row.layer), str(row.num_seqs),
            f"{row.num_tokens:,}", f"{verdict.num_rows:,}", f"{verdict.mean:.2e}", f"{verdict.worst:.2e}",
            ", ".join(map(str, row.where)) or "–", f"{verdict.bounds.mean:.1e}, {verdict.bounds.worst:.1e}", *times,
            "right" if verdict.passed else "WRONG")


def _corruption_lines(found: "Corruption") -> list[str]:
    if found.other_place is None:
        other = f"free block {found.other_block}"
    else:
        other = f"block {found.other_block} of sequence {found.other_place} entry {found.other_entry}"
    return [f"entry {found.entry} of sequence {found.place} (block {found.block}) exchanged with {other}:",
            f"changed: outputs of sequences {', '.join(map(str, found.changed)) or 'none'}",
            f"unchanged to the last bit: the outputs of {len(found.unchanged)} others"]


def _document(outcome: Outcome) -> str:
    import json
    from dataclasses import asdict

    rows = [asdict(row) | {"passed": row.verdict.passed} for row in outcome.rows]
    for row in rows:
        for key in ("mean", "worst"):  # JSON has no infinity: NaN in an output
            row["verdict"][key] = row["verdict"][key] if row["verdict"][key] < float("inf") else None
    speed = outcome.speed and asdict(outcome.speed) | {"gb_per_s": outcome.speed.gb_per_s,
                                                       "ceiling_share": outcome.speed.ceiling_share}
    corruption = outcome.corruption and asdict(outcome.corruption)
    snapshot = outcome.snapshot and str(outcome.snapshot)
    return json.dumps({"schema": 1, "passed": outcome.passed, "origin": outcome.origin, "snapshot": snapshot,
                       "left_out": outcome.left_out, "rows": rows, "decode_speed": speed, "corruption": corruption},
                      indent=1, allow_nan=False)
