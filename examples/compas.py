"""
The COMPAS study of Fisher, Rudin and Dominici, again
=====================================================

Does every good model of the COMPAS score rely on race and sex? Fisher, Rudin and Dominici (2019, section 10) asked this
of kernel least squares. This script repeats their table, with certified ends and intervals, beside what they printed.

It needs ProPublica's file, which is not part of this package. Download ``compas-scores-two-years-violent.csv`` from
https://github.com/propublica/compas-analysis, and run ``python examples/compas.py PATH`` with the path of the file.

What follows theirs: the rows, the split into 500 training rows (the random numbers are those of R before 3.6),
scaling, 402 landmarks, the radius and the bound. Their files do not print the kernel's width: it is the one of their 40
candidates for which the training rows' kernel matrix has the eigenvalues that they print. If the first lines of the
output differ from theirs, the file or the split is another one.
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import reliance as rl

Floats = NDArray[np.float64]
COLUMNS = ("race", "sex", "priors", "charge", "age")
SETS = {"admissible": ["priors", "charge", "age"], "inadmissible": ["race", "sex"]}
# As printed: MR of the reference, the range, and percentile intervals of both ends from 1000 bootstrap samples.
PRINTED = {
    "admissible": (2.78, (1.77, 3.61), ((1.62, 1.86), (3.39, 3.96))),
    "inadmissible": (1.09, (0.795, 1.564), ((0.758, 0.813), (1.48, 1.73))),
}
TRAINING, SQUARED_RADIUS, REFERENCE_RISK, BOUND = 500, 177.7997, 2.848652, 3.1713
FIRST_SHARE = 0.3249358  # of the largest eigenvalue in the sum of squares, for the training rows


def rows(path: Path) -> tuple[Floats, Floats]:
    """Race, sex, priors, charge and age, and the decile of the violence score, of black and white defendants."""
    found = []
    with path.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            days = row["days_b_screening_arrest"]
            measured = days != "" and -30 <= float(days) <= 30 and row["is_recid"] != "-1"
            scored = row["c_charge_degree"] != "O" and row["score_text"] not in ("", "N/A")
            if measured and scored and row["race"] in ("African-American", "Caucasian"):
                own = (row["race"] == "African-American", row["sex"] == "Male", row["priors_count"])
                found.append([*own, row["c_charge_degree"] == "F", row["age"], row["v_decile_score"]])
    table = np.asarray(found, dtype=np.float64)
    return table[:, :-1], table[:, -1]


def sample(n: int, size: int, seed: int = 0) -> NDArray[np.bool_]:
    """Which of n rows ``set.seed(seed); sample(n, size)`` takes in R before 3.6: its Mersenne twister, by rounding."""
    for _ in range(50):
        seed = (69069 * seed + 1) % 2**32
    key = []
    for _ in range(625):
        seed = (69069 * seed + 1) % 2**32
        key.append(seed)
    twister = np.random.MT19937()
    twister.state = {"bit_generator": "MT19937", "state": {"key": np.asarray(key[1:], dtype=np.uint32), "pos": 624}}
    left, taken = list(range(n)), np.zeros(n, dtype=bool)
    for _ in range(size):
        place = int(len(left) * (twister.random_raw() * 2.3283064365386963e-10))
        taken[left[place]] = True
        left[place] = left[-1]
        left.pop()
    return taken


def width(X: Floats) -> float:
    """The bandwidth: of their candidates ``exp(-sigma |x - c|^2)``, 5^-5 <= sigma <= 5^5, what fits the eigenvalues."""
    squares = np.sum((X[:, None, :] - X[None, :, :]) ** 2, axis=2)

    def share(sigma: float) -> float:
        values = np.linalg.eigvalsh(np.exp(-sigma * squares)) ** 2
        return float(values[-1] / values.sum())

    sigma = min(5.0 ** np.linspace(-5, 5, 40), key=lambda sigma: abs(share(sigma) - FIRST_SHARE))
    return float(1.0 / np.sqrt(2.0 * sigma))


def study(X: Floats, y: Floats, train: NDArray[np.bool_]) -> tuple[rl.ClassReliance, rl.ClassReliance]:
    """The range over the other rows, and the range of their reference alone."""
    X = X.copy()
    for column in (2, 4):
        X[:, column] = (X[:, column] - X[train, column].mean()) / X[train, column].std(ddof=1)
    _, first = np.unique(X[train], axis=0, return_index=True)
    kind = rl.KernelClass(
        "rbf",
        landmarks=X[train][np.sort(first)],
        radius=float(np.sqrt(SQUARED_RADIUS)),
        bandwidth=width(X[train]),
        intercept=float(y[train].mean()),
    )
    asked = {"names": COLUMNS, "features": SETS}
    # Ridge regression is the best model of its own norm, so the reference is the best one for the training rows.
    best = rl.model_class_reliance(kind, X[train], y[train], epsilon=0.0, **asked).lower_models[0]
    rest = (X[~train], y[~train])
    alone = rl.model_class_reliance(rl.FiniteClass([best], loss="squared_error"), *rest, epsilon=0.0, **asked)
    allowed = {"epsilon": BOUND - REFERENCE_RISK, "relative": False, "reference": best}
    return rl.model_class_reliance(kind, *rest, **allowed, uncertainty=True, **asked), alone


def main(path: Path) -> None:
    X, y = rows(path)
    train = sample(len(y), min(TRAINING, len(y) // 2))
    print(f"{len(y)} defendants, {train.sum()} for training; race, sex, charge: {X[train][:, [0, 1, 3]].mean(axis=0)}")
    print("printed there: 3373, 500; 0.552, 0.756, 0.628\n")
    found, alone = study(X, y, train)
    print(f"risk of the reference {found.reference_risk:.4f} ({REFERENCE_RISK:.4f}), bound {found.bound:.4f} ({BOUND})")
    intervals = found.interval()
    for k, name in enumerate(found.names):
        reliance, ends, boots = PRINTED[name]
        print(f"\n{name:14} here                          printed")
        print(f"  reference    {alone.lower[k]:.3f}                         {reliance}")
        for end, (value, gap) in enumerate(zip((found.lower[k], found.upper[k]), found.gap[k], strict=True)):
            low, high = intervals[k, end]
            said = f"{value:.3f} [{low:.2f}, {high:.2f}], gap {gap:.0e}"
            print(f"  {('least', 'most')[end]:12} {said:29} {ends[end]} {list(boots[end])}")


if __name__ == "__main__":
    given = Path(sys.argv[1]) if len(sys.argv) > 1 else None
    if given is None or not given.is_file():
        print(__doc__)
        print("No file was given." if given is None else f"There is no file {given.name}.")
    else:
        main(given)
