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


def bars(panels: dict[str, dict[str, float]], path: Path, about: str) -> str:
    """Times of programs, a panel a size, on a logarithmic axis; vsdn stands out."""
    heights = [len(panel) for panel in panels.values()]
    figure, axes = plt.subplots(
        len(panels), 1, figsize=(7, 0.24 * sum(heights) + len(panels)), squeeze=False, height_ratios=heights
    )
    for axis, (title, panel) in zip(axes[:, 0], panels.items(), strict=True):
        names = sorted(panel, key=lambda name: -panel[name])
        colours = [OURS if name.startswith("vsdn") else THEIRS for name in names]
        drawn = axis.barh(names, [panel[name] for name in names], color=colours)
        axis.bar_label(drawn, fmt="%.3g", padding=3, fontsize=7)
        axis.set(xscale="log", title=title)
        axis.title.set_fontsize(9)
        axis.tick_params(labelsize=7)
        axis.margins(x=0.15)
        axis.spines[["top", "right"]].set_visible(False)
    axes[-1, 0].set_xlabel(about, fontsize=8)
    figure.tight_layout()
    return _save(figure, path, about)


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
