"""Strict by default: shapes are checked, promotion is explicit, warnings are errors, every test has its own key."""

import os
import zlib
from pathlib import Path

import jax
import jax.random as jr
import pytest
from jaxtyping import install_import_hook

CHECKED = (
    "batches",
    "fused",
    "grids",
    "kalman",
    "likelihoods",
    "memories",
    "metrics",
    "models",
    "nets",
    "online.filtering",
    "particles",
    "sde",
    "training.lessons",
    "training.loop",
    "training.objectives",
)
install_import_hook([f"vsdn.{name}" for name in CHECKED], "beartype.beartype")
jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_disable_most_optimizations", True)  # most of a small test's time is compilation
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_cpu_use_fusion_emitters=false"  # a quarter of that


def pytest_configure(config):
    """Compiled programs, small ones too, are kept between tests, workers, runs and the processes that tests start."""
    own = {
        "jax_compilation_cache_dir": str(config.cache.mkdir("xla")),
        "jax_persistent_cache_min_compile_time_secs": 0.0,
    }
    for name, value in own.items():
        jax.config.update(name, value)
        os.environ[name.upper()] = str(value)
    os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] = "1"


def pytest_collection_modifyitems(items):
    """The files of the longest tests come first: at the end no worker waits for one of them."""
    items.sort(key=lambda item: item.path.name not in ("test_reproduction.py", "test_resume.py"))


@pytest.fixture
def key(request):
    """A key that follows from the test's name."""
    return jr.key(zlib.crc32(request.node.nodeid.split("/")[-1].encode()))


@pytest.fixture
def x64():
    """64 bits, for what is compared with a closed form."""
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", False)


@pytest.fixture
def lenient():
    """Promotion as usual, for what trains: optax counts on it."""
    with jax.numpy_dtype_promotion("standard"):
        yield


@pytest.fixture(scope="session")
def shared_data():
    """A function from the name of a file of the shared data to its path; a missing file skips."""
    folder = Path(os.environ.get("VSDN_DATA", Path(__file__).parents[1] / ".." / "shared" / "data"))

    def find(name: str, source: str) -> Path:
        if not (folder / name).exists():
            pytest.skip(f"{name} is missing: get it from {source} and put it into {folder}, or set VSDN_DATA")
        return folder / name

    return find
