"""A picture of measured rows: the share of the read ceiling over block sizes or workloads, by kernel, table, layout."""

from pathlib import Path

from pagesim.kernels.harness.measurement import Row


def plot(rows: list[Row], path: Path) -> None:
    """Workloads over several block sizes have a panel each, those of one size (of a sweep, say) share one.

    Of a single block size the workloads stand side by side.
    """
    from matplotlib.figure import Figure

    rows = [row for row in rows if row.ceiling_share]
    sizes: dict[str, set[int]] = {}
    for row in rows:
        sizes.setdefault(row.workload, set()).add(row.block_size)
    by_size = len(set().union(*sizes.values())) > 1
    panels: dict[str, list[Row]] = {}
    for row in rows:
        panels.setdefault(row.workload if len(sizes[row.workload]) > 1 else "", []).append(row)
    figure = Figure(figsize=(2 + 5 * max(1, len(panels)), 4.5), layout="constrained")
    for axes, (name, shown) in zip(figure.subplots(1, max(1, len(panels)), squeeze=False)[0], panels.items(),
                                   strict=False):
        lines: dict[tuple, list] = {}
        for row in shown:
            x = row.block_size if by_size else list(sizes).index(row.workload)
            lines.setdefault((row.kernel, row.tables, row.layout), []).append((x, 100 * row.ceiling_share))
        for key, points in lines.items():
            axes.plot(*zip(*sorted(points), strict=True), marker="o", linestyle="-" if by_size else "",
                      label=" ".join(key))
        others = ", ".join(dict.fromkeys(row.workload for row in shown)) if len(panels) > 1 else ""
        axes.set(title=name or others, ylabel="share of the read ceiling, %")
        if by_size:
            axes.set_xscale("log", base=2)
            axes.set(xlabel="block size, tokens", xticks=sorted({row.block_size for row in shown}))
            axes.xaxis.set_major_formatter("{x:.0f}")
            axes.minorticks_off()
        else:
            axes.set_xticks(range(len(sizes)), list(sizes), rotation=30, ha="right")
        axes.grid(alpha=0.3)
        axes.legend(fontsize="small")
    figure.savefig(path, dpi=120)
