"""The benchmarks' pictures, beside the report."""

from pathlib import Path

import matplotlib

matplotlib.use("agg")
import matplotlib.pyplot as plt
from matplotlib.figure import Figure

OURS, THEIRS = "#c0392b", "#95a5a6"


def _save(figure: Figure, path: Path, about: str) -> str:
    """The line of Markdown that shows the picture."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, bbox_inches="tight", metadata={"Date": None})
    plt.close(figure)
    return f"![{about}]({path.parent.name}/{path.name})"


def bars(title: str, amounts: dict[str, float], path: Path, about: str) -> str:
    """Amounts of programs on a logarithmic axis, the least below; vsdn stands out."""
    names = sorted(amounts, key=lambda name: amounts[name])
    figure, axis = plt.subplots(figsize=(7, 0.25 * len(names) + 0.8))
    colours = [OURS if name.startswith("vsdn") else THEIRS for name in names]
    drawn = axis.barh(names, [amounts[name] for name in names], color=colours)
    axis.bar_label(drawn, fmt="%.3g", padding=3, fontsize=7)
    axis.set(xscale="log", xlabel=about)
    axis.set_title(title, fontsize=9)
    axis.xaxis.label.set_fontsize(8)
    axis.tick_params(labelsize=7)
    axis.margins(x=0.15)
    axis.spines[["top", "right"]].set_visible(False)
    return _save(figure, path, f"{title}: {about}")


def growth(panels: dict[str, dict[str, tuple[list[float], list[float]]]], path: Path, about: str) -> str:
    """Curves of an amount against a size, a panel a kind of size, both axes logarithmic."""
    columns = min(3, len(panels))
    rows = -(-len(panels) // columns)
    figure, axes = plt.subplots(rows, columns, figsize=(3.2 * columns, 2.6 * rows), squeeze=False)
    for axis, (title, curves) in zip(axes.flat, panels.items(), strict=False):
        for name, (sizes, amounts) in curves.items():
            axis.loglog(sizes, amounts, "o-", label=name, markersize=3)
        axis.set_title(title, fontsize=9)
        axis.tick_params(labelsize=7)
        axis.legend(fontsize=6)
        axis.grid(alpha=0.3)
    for axis in list(axes.flat)[len(panels) :]:
        axis.set_visible(False)
    figure.tight_layout()
    return _save(figure, path, about)
