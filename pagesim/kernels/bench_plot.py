"""A picture of measured rows: the share of the read ceiling at each block size, a line for each kernel and table."""

from pathlib import Path

from pagesim.kernels.measurement import Row


def plot(rows: list[Row], path: Path) -> None:
    from matplotlib.figure import Figure

    names = list(dict.fromkeys(row.workload for row in rows))
    figure = Figure(figsize=(1 + 4 * max(1, len(names)), 4), layout="constrained")
    for axes, name in zip(figure.subplots(1, max(1, len(names)), squeeze=False)[0], names, strict=False):
        lines = {}
        for row in rows:
            if row.workload == name and row.ceiling_share:
                point = (row.block_size, 100 * row.ceiling_share)
                lines.setdefault((row.kernel, row.tables, row.layout), []).append(point)
        for key, points in lines.items():
            x, y = zip(*sorted(points), strict=True)
            axes.plot(x, y, marker="o", label=" ".join(key))
        axes.set(title=name, xlabel="block size, tokens", ylabel="share of the read ceiling, %")
        axes.set_xscale("log", base=2)
        axes.legend(fontsize="small")
    figure.savefig(path, dpi=120)
