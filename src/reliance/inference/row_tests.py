"""Tests on the values of single rows, and on the ranks of whole draws: statistics and p-values of p features."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from reliance._core import streams

Floats = NDArray[np.float64]


def sign_flip_test(rows: Floats, alternative: str, key: int, flips: int = 9999) -> tuple[Floats, Floats]:
    """Flip the signs of the rows' values (p, n) at random: p = (1 + #{flipped mean as extreme}) / (flips + 1)."""
    p, n = rows.shape
    turned = -rows if alternative == "less" else rows
    size = np.abs if alternative == "two-sided" else np.asarray
    observed = size(turned.sum(axis=1))
    bar = observed - 1e-12 * np.abs(turned).sum(axis=1)  # a tie must not be lost to rounding
    generator, count = streams.stream(key, streams.SIGNS, 0), np.zeros(p)
    step = max(1, 2_000_000 // n)
    for start in range(0, flips, step):
        signs = generator.integers(0, 2, size=(min(step, flips - start), n)) * 2.0 - 1.0
        count += (size(signs @ turned.T) >= bar).sum(axis=0)
    return np.mean(rows, axis=1, dtype=np.float64), (1.0 + count) / (flips + 1.0)


def rank_test(draws: Floats, null: float, alternative: str) -> tuple[Floats, Floats]:
    """Rank of the base risk among the draws: p = (1 + #{draws whose risk is not above the base risk}) / (K + 1)."""
    below, above = (draws <= null).sum(axis=1), (draws >= null).sum(axis=1)
    count = {"greater": below, "less": above, "two-sided": 2 * np.minimum(below, above) + 1}[alternative]
    return below.astype(np.float64), np.minimum((1.0 + count) / (draws.shape[1] + 1.0), 1.0)


def row_test(rows: Floats, method: str, alternative: str) -> tuple[Floats, Floats]:
    """Wilcoxon's signed ranks or the sign test on the rows' values (p, n); zeros say nothing."""
    from scipy import stats  # slow to import, and rarely wanted

    found = []
    for row in rows:
        kept = row[row != 0.0]
        if kept.size == 0:
            found.append((0.0, 1.0))
        elif method == "wilcoxon":
            answer = stats.wilcoxon(kept, alternative=alternative)
            found.append((float(answer.statistic), float(answer.pvalue)))
        else:
            higher = int((kept > 0.0).sum())
            found.append((float(higher), float(stats.binomtest(higher, kept.size, alternative=alternative).pvalue)))
    statistic, p = np.asarray(found, dtype=np.float64).reshape(-1, 2).T
    return statistic, p
