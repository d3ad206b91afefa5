"""Measured rows as the cells of a table."""

from pagesim.kernels.harness.measurement import Row, over_contiguous

COLUMNS = ("workload", "kernel", "tables", "block size", "layout", "graph µs", "p20", "p80", "eager µs", "GB/s",
           "% of ceiling", "% if shared is read once", "TFLOP/s", "over contiguous", "mean error", "worst row")


def title(rows: list[Row]) -> str:
    """What every figure of the table depends on."""
    where = rows[0].environment
    return (f"{where['gpu']}, driver {where['driver']}, torch {where['torch']}, triton {where['triton']}; "
            f"copy {rows[0].copy_gb_per_s:,.0f} GB/s, {rows[0].dtype}")


def cells(rows: list[Row]) -> tuple[tuple[str, ...], ...]:
    ratios = over_contiguous(rows)
    return tuple((row.workload, row.kernel, row.tables, str(row.block_size), row.layout, _text(row.graph_us, ".1f"),
                  _text(row.graph_p20_us, ".1f"), _text(row.graph_p80_us, ".1f"), _text(row.eager_us, ".1f"),
                  _text(row.gb_per_s, ",.0f"), _text(row.ceiling_share and 100 * row.ceiling_share, ".1f"),
                  _text(row.unique_ceiling_share and 100 * row.unique_ceiling_share, ".1f"),
                  _text(row.tflop_per_s, ".0f"), _text(ratios.get(row.key), ".3f"), f"{row.error_mean:.1e}",
                  f"{row.error_worst:.1e}") for row in rows)


def _text(value: float | None, form: str) -> str:
    return "–" if value is None else format(value, form)
