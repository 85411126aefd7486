"""Builds the fused SDE kernel where there is a C++ compiler; without one the library installs and runs all the same."""

import sys
from pathlib import Path

import jaxlib
from setuptools import Extension, setup

KERNEL = Path("src/vsdn/kernel")
GCC = ["-std=c++17", "-O3", "-g0", "-fno-tree-loop-distribute-patterns", "-Wno-psabi", "-Wno-maybe-uninitialized"]
FLAGS = ["/std:c++17", "/O2"] if sys.platform == "win32" else GCC

setup(
    ext_modules=[
        Extension(
            "vsdn._kernel",
            sources=sorted(path.as_posix() for path in KERNEL.glob("*.cc")),
            depends=sorted(path.as_posix() for path in KERNEL.glob("*.h")),
            include_dirs=[str(Path(jaxlib.__file__).parent / "include")],
            extra_compile_args=FLAGS,
            language="c++",
            optional=True,  # a build that fails is said, and goes on without
        )
    ]
)
