"""The direction of the imports, and what ``import reliance`` may pull in."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "src" / "reliance"

# The path of the data. A package imports only what stands before it; within a package any module may import any other.
LAYERS = (
    "_core",
    "losses",
    "data",
    "features",
    "models",
    "plans",
    "engine",
    "samplers",
    "inference",
    "exact",
    "plots",
    "results",
    "functional",
    "methods",
    "rashomon",
    "refit",
    "sklearn",
    "report",
    "cli",
    "__main__",
)
CORE = {"numpy", "scipy", "array_api_compat", "tqdm"}
BACKENDS = {"torch", "jax", "jaxlib", "cupy", "array_api_strict", "dask"}
HEAVY = ("torch", "jax", "cupy", "pandas", "sklearn", "matplotlib", "lightgbm", "xgboost")
# arrays.py, loops.py and devices.py know the backend, tracing.py how JAX compiles; models adapts torch modules and
# looks for their hooks; two modules use the frameworks' gradients; the command line opens files of torch.
KNOW_BACKENDS = {
    "_core.arrays",
    "_core.loops",
    "_core.devices",
    "_core.tracing",
    "cli.models",
    "models.calling",
    "models.layers",
    "models.modules",
    "models.several_inputs",
    "models.untouched",
    "rashomon.jax_framework",
    "rashomon.torch_framework",
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
    """What the imports of a module do wrong, by its name, ``"plans.shifts"`` say."""
    faults = []
    module = name.partition(".")[0]  # a package has one place in the order
    for found in find_imports(ast.parse(source), package):
        where = f"{name}, line {found.line}: imports {found.target}"
        parts = found.target.split(".")
        if parts[0] == "reliance":
            target = parts[1] if len(parts) > 1 else ""
            if module == "__init__":
                continue
            if target not in LAYERS:
                faults.append(f"{where}, which is not one of the layers")
            elif LAYERS.index(target) > LAYERS.index(module):
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
    assert module in (*LAYERS, "__init__"), f"{relative}: every module belongs to one of the layers"
    package = ("reliance", *relative.parts[:-1])
    assert check_module(name, path.read_text(encoding="utf-8"), package) == []


@pytest.mark.parametrize(
    ("module", "source", "wrong"),
    [
        ("losses.functions", "from reliance import plans", True),
        ("losses.functions", "from reliance.plans.shifts import Shifts", True),
        ("losses.functions", "def f():\n    from reliance.plans.shifts import Shifts", True),
        ("losses.functions", "import reliance", True),
        ("losses.checks", "from reliance.losses.functions import resolve", False),
        ("plans.shifts", "from reliance.losses.functions import resolve", False),
        ("plans.shifts", "from reliance._core.arrays import Array", False),
        ("plans.shifts", "if TYPE_CHECKING:\n    from reliance.engine.blocks import run", False),
        ("results.importance", "from reliance.plots import bars", False),
        ("plots.curves", "from reliance.results import Importance", True),
        ("plots.curves", "def f():\n    import matplotlib.pyplot as plt", False),
        ("plots.curves", "import matplotlib.pyplot as plt", True),
        ("results.importance", "def to_frame(self):\n    import pandas", False),
        ("results.importance", "import pandas", True),
        ("engine.blocks", "def f():\n    import jax.numpy as jnp", True),
        ("engine.blocks", "from array_api_compat import torch as xp", True),
        ("engine.blocks", "def f():\n    import array_api_compat.torch", True),
        ("models.calling", "def f():\n    import torch", False),
        ("models.calling", "import torch", True),
        ("rashomon.torch_framework", "def f():\n    import torch", False),
        ("rashomon.linear", "def f():\n    import torch", True),
        ("methods.local", "from reliance.rashomon.reliance import model_class_reliance", True),
        ("_core.arrays", "import numpy as np\nimport array_api_compat", False),
        ("methods.replacement", "import math\nfrom scipy import stats", False),
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


def test_public_is_what_is_exported() -> None:
    import reliance

    assert {name for name in dir(reliance) if not name.startswith("__")} == set(reliance.__all__)


def test_public_names_are_documented() -> None:
    import reliance

    for name in reliance.__all__:
        value = getattr(reliance, name)
        if not name.startswith("__"):
            assert value.__doc__, f"reliance.{name} has no docstring"


def test_the_design_names_every_module() -> None:
    """The table of docs/design.md: packages in the order of LAYERS, each with all of its modules."""
    page = (PACKAGE.parents[1] / "docs" / "design.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \|[^|]*\|(.*)\|$", page, re.MULTILINE)
    named = {package: set(re.findall(r"`(\w+)`", modules)) for package, modules in rows if package in LAYERS}
    assert tuple(named) == LAYERS
    for package, modules in named.items():
        files = {path.stem for path in (PACKAGE / package).glob("*.py")} - {"__init__"}
        assert modules == files, package
