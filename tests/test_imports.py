"""The direction of the imports, and what ``import reliance`` may pull in."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "src" / "reliance"

# The path of the data. A module imports only what stands before it; __init__ gathers them all.
ORDER = (
    "words",
    "records",
    "files",
    "_array",
    "tracing",
    "kinds",
    "rng",
    "loss_formulas",
    "losses",
    "loss_checks",
    "outputs",
    "tables",
    "untouched",
    "probes",
    "ensembles",
    "tree_readers",
    "responses",
    "adapters",
    "modules",
    "models",
    "checked_arrays",
    "features",
    "several_inputs",
    "kernels",
    "stores",
    "inputs",
    "variables",
    "plans",
    "partial_plans",
    "constant_plans",
    "sampled_plans",
    "draws",
    "regressors",
    "neighbours",
    "knockoffs",
    "samplers",
    "scrambling",
    "reductions",
    "rounding",
    "executors",
    "shapes",
    "blocks",
    "structure",
    "variance",
    "freedom",
    "row_tests",
    "inference",
    "summaries",
    "identified",
    "corrections",
    "export",
    "misfit",
    "curves",
    "importance_files",
    "plots",
    "results",
    "comparisons",
    "functional",
    "measuring",
    "adaptive",
    "importance",
    "studies",
    "conditional",
    "classes",
    "model_classes",
    "class_results",
    "rashomon",
    "impact",
    "refit",
    "loading",
    "companions",
    "sklearn",
)
# Within a sub-package any module may import any other.
PACKAGES = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
CORE = {"numpy", "scipy", "array_api_compat", "array_api_extra", "tqdm"}
BACKENDS = {"torch", "jax", "jaxlib", "cupy", "array_api_strict", "dask"}
HEAVY = ("torch", "jax", "cupy", "pandas", "sklearn", "matplotlib", "lightgbm", "xgboost")
# _array.py knows the backend, tracing.py how JAX compiles; models.py adapts torch modules, untouched.py looks for their
# hooks; two modules use the frameworks' gradients.
KNOW_BACKENDS = {
    "_array",
    "tracing",
    "untouched",
    "modules",
    "models",
    "several_inputs",
    "classes.torch_framework",
    "classes.jax_framework",
}


@dataclass(frozen=True)
class Import:
    target: str  # dotted, the imported name last: "reliance.losses.resolve"
    line: int
    function: str | None  # the innermost function around it


def find_imports(tree: ast.Module, package: tuple[str, ...]) -> Iterator[Import]:
    """Every import outside TYPE_CHECKING blocks, relative ones made absolute against ``package``."""

    def visit(node: ast.AST, function: str | None) -> Iterator[Import]:
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            for child in node.orelse:
                yield from visit(child, function)
            return
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(alias.name, node.lineno, function)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            parts = (*base, *(node.module.split(".") if node.module else ()))
            for alias in node.names:  # each name may be a module: `from . import losses`
                yield Import(".".join((*parts, alias.name)), node.lineno, function)
        inner = node.name if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) else function
        for child in ast.iter_child_nodes(node):
            yield from visit(child, inner)

    yield from visit(tree, None)


def check_module(name: str, source: str, package: tuple[str, ...] = ("reliance",)) -> list[str]:
    """What the imports of a module do wrong, by its name ``"losses"`` or ``"classes.linear"``."""
    faults = []
    module = name.partition(".")[0]  # a sub-package has one place in the order
    for found in find_imports(ast.parse(source), package):
        where = f"{name}, line {found.line}: imports {found.target}"
        parts = found.target.split(".")
        if parts[0] == "reliance":
            target = parts[1] if len(parts) > 1 else ""
            if module == "__init__":
                continue
            if target not in ORDER:
                faults.append(f"{where}, which is not a module of the order")
            elif target == module and module in PACKAGES:
                continue
            elif ORDER.index(target) >= ORDER.index(module):
                faults.append(f"{where}, which does not stand before it")
            continue
        if BACKENDS.intersection(parts) and name not in KNOW_BACKENDS:
            faults.append(f"{where}: only {sorted(KNOW_BACKENDS)} may know a backend")
        if parts[0] not in CORE and parts[0] not in sys.stdlib_module_names and found.function is None:
            faults.append(f"{where} at module level: optional packages are imported inside functions")
    return faults


def source_files() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


@pytest.mark.parametrize("path", source_files(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_import_direction(path: Path) -> None:
    relative = path.relative_to(PACKAGE)
    name = ".".join(relative.with_suffix("").parts)
    module = relative.parts[0].removesuffix(".py")
    assert module in (*ORDER, "__init__"), f"{relative}: give it its place in ORDER"
    package = ("reliance", *relative.parts[:-1])
    assert check_module(name, path.read_text(encoding="utf-8"), package) == []


@pytest.mark.parametrize(
    ("module", "source", "wrong"),
    [
        ("losses", "from . import plans", True),
        ("losses", "from reliance import plans", True),
        ("losses", "from .plans import Shifts", True),
        ("losses", "def f():\n    from reliance.plans import Shifts", True),
        ("losses", "import reliance", True),
        ("plans", "from .losses import resolve", False),
        ("plans", "from ._array import Array", False),
        ("plans", "if TYPE_CHECKING:\n    from .blocks import run", False),
        ("results", "from .plots import bars", False),
        ("plots.curves", "from reliance.results import Importance", True),
        ("plots.curves", "def f():\n    import matplotlib.pyplot as plt", False),
        ("plots.curves", "import matplotlib.pyplot as plt", True),
        ("results", "def to_frame(self):\n    import pandas", False),
        ("results", "import pandas", True),
        ("blocks", "def f():\n    import jax.numpy as jnp", True),
        ("blocks", "from array_api_compat import torch as xp", True),
        ("blocks", "def f():\n    import array_api_compat.torch", True),
        ("models", "def f():\n    import torch", False),
        ("models", "import torch", True),
        ("classes.torch_framework", "def f():\n    import torch", False),
        ("classes.linear", "def f():\n    import torch", True),
        ("classes.linear", "from reliance.rashomon import model_class_reliance", True),
        ("_array", "import numpy as np\nimport array_api_compat", False),
        ("importance", "import math\nfrom scipy import stats", False),
        ("unheard_of", "import math", False),
    ],
)
def test_the_check_itself(module: str, source: str, wrong: bool) -> None:
    assert bool(check_module(module, source)) is wrong


def run_python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_import_is_light() -> None:
    loaded = run_python(f"import reliance, sys; print([name for name in {HEAVY!r} if name in sys.modules])")
    assert loaded.strip() == "[]"


def test_numpy_work_needs_no_optional_package() -> None:
    run_python(
        "import sys\n"
        "class Absent:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name.split('.')[0] in {HEAVY!r}:\n"
        "            raise ModuleNotFoundError(name)\n"
        "sys.meta_path.insert(0, Absent())\n"
        "import numpy as np, reliance as rl\n"
        "X = np.random.default_rng(0).normal(size=(30, 2))\n"
        "result = rl.permutation_importance(lambda X: X[:, 0], X, X[:, 0], draws=3, rng=0)\n"
        "result.interval(); repr(result)\n"
    )


def test_package_is_typed() -> None:
    assert (PACKAGE / "py.typed").is_file()


def test_public_names_are_documented() -> None:
    import reliance

    for name in reliance.__all__:
        value = getattr(reliance, name)
        if not name.startswith("__"):
            assert value.__doc__, f"reliance.{name} has no docstring"
