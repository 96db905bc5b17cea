"""
Are features important because of a variable that the model never saw?
======================================================================

Study VI-B of König et al. (2020), Figure 5. C acts on X2, X3 and Y; X1 and X2 act on Y; C was not there when the model
was fitted to X1, X2 and X3::

    C -> X2 -> Y,    C -> X3,    C -> Y,    X1 -> Y

Given C the importance of X1 stays what it is, that of X2 falls, and that of X3, which says nothing about Y that C does
not say, vanishes. The script prints each importance with its interval beside the value that the fitted model has in the
population, and draws the figure::

    python examples/outside_variables.py [outside_variables.png]
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
from indirect_influence import analytic, changes, draw, figure, least_squares, table

import reliance as rl

FEATURES = ["X1", "X2", "X3"]
PARENTS = {"X1": [], "C": [], "X2": ["C"], "X3": ["C"], "Y": ["X1", "X2", "C"]}
SIGMA = {"X1": 1.0, "C": 1.0, "X2": 1.0, "X3": 0.5, "Y": 0.5}
SETS = {"nothing": [], "C": ["C"]}


def split(samples: int, seed: int) -> tuple[list[Any], list[Any]]:
    """X, y and C of the first 90% of the rows, and of the others."""
    data = draw(PARENTS, SIGMA, samples, seed)
    arrays = [np.column_stack([data[name] for name in FEATURES]), data["Y"], data["C"]]
    train = samples * 9 // 10
    return [array[:train] for array in arrays], [array[train:] for array in arrays]


def study(
    samples: int = 100_000, seed: int = 0, sampler: Any = "gaussian"
) -> tuple[rl.RelativeImportance, dict[tuple[str, str], float]]:
    """Model and sampler from the first 90% of the rows, importances on the others; and the analytic values."""
    (X_train, y_train, C_train), (X, y, C) = split(samples, seed)
    intercept, slopes = least_squares(X_train, y_train)
    result = rl.relative_importance(
        lambda batch: batch @ slopes + intercept,
        X,
        y,
        given=rl.Given(SETS, context={"C": C}, sampler=sampler, fit_on=(X_train, {"C": C_train})),
        names=FEATURES,
        rng=seed,
    )
    return result, analytic(PARENTS, SIGMA, FEATURES, slopes, SETS)


def main(picture: Path = Path("outside_variables.png"), samples: int = 100_000) -> None:
    """Measure, print, draw."""
    result, expected = study(samples)
    _, slopes = least_squares(*split(samples, 0)[0][:2])
    print(f"mean squared error on {result['C'].n} test rows: {result['C'].base_risk:.3f}, slopes {slopes.round(2)}\n")
    print(table(result, expected))
    print("\nHow much of it is due to C? Importance minus importance given C:")
    print(changes(result.delta("nothing", "C")))
    figure(result, expected, "A variable outside the model: C → X2, X3 and Y; X1 and X2 → Y", picture)
    print(f"\nWrote {picture.resolve()}")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:2]))
