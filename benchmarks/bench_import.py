"""Import time: what ``import reliance`` costs, and what it must not pull in."""

from __future__ import annotations

import subprocess
import sys

from .common import Benchmark

HEAVY = ("torch", "jax", "cupy", "pandas", "sklearn", "matplotlib")


def run_python(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


class Import(Benchmark):
    """Each in a new interpreter."""

    def timeraw_import(self) -> str:
        return "import reliance"

    def timeraw_import_dependencies(self) -> str:
        """The floor: the core dependencies alone."""
        return "import numpy, scipy.stats, array_api_compat"

    def time_import_in_new_process(self) -> None:
        run_python("import reliance")

    def peakmem_import(self) -> None:
        import reliance  # noqa: F401

    def track_modules(self) -> int:
        """Modules loaded by the import."""
        return int(run_python("import sys; a = len(sys.modules); import reliance; print(len(sys.modules) - a)"))

    track_modules.unit = "modules"

    def track_heavy_modules(self) -> int:
        """Optional packages loaded by the import: always 0."""
        return int(run_python(f"import sys, reliance; print(sum(name in sys.modules for name in {HEAVY!r}))"))

    track_heavy_modules.unit = "modules"
