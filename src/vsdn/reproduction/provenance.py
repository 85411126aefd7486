"""The provenance of a result: versions of the program and its dependencies, without machine names."""

import functools
import os
import platform
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any

import vsdn
from vsdn.version import __version__

PACKAGES = ("jax", "jaxlib", "equinox", "optax", "numpy", "pyarrow")


@functools.cache
def versions() -> dict[str, Any]:
    """The versions in use in this process."""
    return {
        "vsdn": __version__,
        "commit": commit(),
        **{name: metadata.version(name) for name in PACKAGES},
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}",
        "cores": num_cores(),
    }


def num_cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def commit() -> str | None:
    """The commit of this source tree, with a + if files have changed since; None if it is not a source tree."""
    folder = Path(vsdn.__file__).parent
    try:
        if not (folder.parents[1] / ".git").exists():
            return None  # installed: a surrounding tree would be another project's
        head = _git(folder, "rev-parse", "--short=12", "HEAD")
        return head + ("+" if _git(folder, "status", "--porcelain", "--untracked-files=no", ".") else "")
    except (OSError, subprocess.SubprocessError):
        return None


def _git(folder: Path, *words: str) -> str:
    done = subprocess.run(["git", *words], cwd=folder, check=True, capture_output=True, text=True, timeout=10)
    return done.stdout.strip()
