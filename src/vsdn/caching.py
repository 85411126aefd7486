"""Keeps compiled programs on disk, so that a second start is fast."""

import os
from pathlib import Path

import jax


def use_compilation_cache() -> None:
    """Makes JAX keep compiled programs in the user's cache folder, unless a place is set already."""
    if jax.config.jax_compilation_cache_dir is not None:  # pyright: ignore[reportAttributeAccessIssue]
        return
    root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    jax.config.update("jax_compilation_cache_dir", str(root / "vsdn" / "xla"))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)
