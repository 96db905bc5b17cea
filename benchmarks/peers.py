"""This package beside its peers: the same work, values compared first, then ratios of times, all in one run.

    python benchmarks/peers.py                     everything, and docs/benchmarks.md is written
    python benchmarks/peers.py captum fippy        some peers; prints only, as the page must come from one run
    python benchmarks/peers.py --quick             sizes that only show that it runs; prints only
    python benchmarks/peers.py --quick --write     and writes the page all the same

A ratio is the peer's seconds over ours, each the best of alternating repeats: below 1 the peer is faster. A case whose
values do not agree ends the run.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from time import perf_counter
from timeit import timeit

sys.path.insert(0, str(Path(__file__).parent))  # also when asv imports this file as part of a package
import peer_cases as plain
import peer_cases_conditional as conditional
from peer_cases import ROUNDING, STANDARD_ERRORS, Case, Sizes, agreement

PAGE = Path(__file__).parents[1] / "docs" / "benchmarks.md"
REPEATS = 3
LONGEST = 20.0  # seconds; what takes longer is timed once
IN_SIZES = (
    plain.sklearn_linear,
    plain.sklearn_boosted,
    plain.sklearn_forest,
    plain.sklearn_network,
    plain.sklearn_pipeline,
    plain.sklearn_auc,
)
CASES: dict[str, tuple[Callable[[Sizes], Case], ...]] = {
    "scikit-learn": (
        *(partial(case, place=place) for case in IN_SIZES for place in range(3)),
        plain.sklearn_table,
    ),
    "captum": (plain.captum_small, plain.captum_large),
    "featureimpact": (plain.impact_linear, plain.impact_boosted),
    "fippy": (
        conditional.fippy_pfi,
        conditional.fippy_cfi,
        conditional.fippy_rfi,
        conditional.fippy_cfi_boosted,
    ),
    "hidimstat": (
        conditional.hidimstat_pfi,
        conditional.hidimstat_pfi_boosted,
        conditional.hidimstat_cfi,
        conditional.hidimstat_cfi_boosted,
        conditional.hidimstat_loco,
        conditional.hidimstat_loco_boosted,
    ),
    "sage-importance": (conditional.sage_additive,),
}


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    peer: str
    work: str
    ours: str
    agreement: str
    theirs_seconds: float
    ours_seconds: float

    @property
    def ratio(self) -> float:
        return self.theirs_seconds / self.ours_seconds


def check(case: Case) -> list[str]:
    """How well each of our calls agrees with the peer, in words; raises where one does not."""
    theirs = case.theirs()
    found = []
    for ours in case.ours:
        try:
            found.append(agreement(theirs, ours.run(), ours.exact, case.dtype))
        except ValueError as error:
            raise ValueError(f"{case.peer} {case.call} and {ours.call}, {case.work}: {error}") from error
    return found


def measure(case: Case) -> list[Row]:
    """The values first, which also warms both sides up; then the best of a few times, taken in turns."""
    start = perf_counter()
    words = check(case)
    repeats = 1 if perf_counter() - start > LONGEST else REPEATS
    sides = (case.theirs, *[side.run for side in case.ours])
    turns = [[timeit(side, number=1) for side in sides] for _ in range(repeats)]
    theirs, *ours = map(min, zip(*turns, strict=True))
    return [
        Row(f"{case.peer} `{case.call}`", case.work, f"`{side.call}`", word, theirs, seconds)
        for side, word, seconds in zip(case.ours, words, ours, strict=True)
    ]


# ---------------------------------------------------------------------------------------------------------------------
# The page


def processor() -> str:
    """The model of the CPU as the operating system names it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def machine() -> str:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    cores = os.cpu_count()
    return f"{cores} cores of {processor()}, {memory:.0f} GB of memory, {platform.system()}, no GPU used"


def versions() -> str:
    names = ("reliance", *CASES, "numpy", "torch", "pandas")
    found = ", ".join(f"{name} {version(name)}" for name in names)
    return f"Python {platform.python_version()}, {found}"


def number(value: float) -> str:
    """Three figures, without an exponent."""
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def table(rows: Sequence[Row]) -> str:
    head = ["| the peer | the work | ours | values agree | peer, s | ours, s | ratio |", "|" + 4 * "---|" + 3 * "--:|"]
    lines = [
        f"| {row.peer} | {row.work} | {row.ours} | {row.agreement} | {row.theirs_seconds:.3g} | {row.ours_seconds:.3g} "
        f"| **{number(row.ratio)}** |"
        for row in rows
    ]
    return "\n".join(head + lines)


def page(rows: Sequence[Row], command: str) -> str:
    slower = sum(row.ratio < 1 for row in rows)
    count = {0: "In no row the peer is faster", 1: "In one row the peer is faster"}
    return f"""<!-- No figure: a table of measured times. -->
# Peers, side by side

The same work by another package and by `reliance`, in one process and one run. A ratio is the peer's time over ours:
above 1 we are faster, below 1 the peer is. {count.get(slower, f"In {slower} rows the peer is faster")}; all rows that
were measured are here.

```bash
{command}
```

{machine()}.
{versions()}.

{table(rows)}

n rows, p features, K draws of each feature; all features are measured. Times are the best of {REPEATS}, taken in turns
after the call of each whose values were compared; of one if these calls took more than {LONGEST:g} s together. Every
package runs with its own defaults for threads and jobs. The fit of the model is not in the times, except where it is
the work (LOCO, `algorithm_reliance`); models are fitted on the first {plain.LARGE} rows at most. Our times include
standard errors.

## What "values agree" means

Values are compared before anything is timed; a case that disagrees stops the run.

* **Equal to** a share of the largest value: nothing is drawn, or the same permutations are (the façade replays those of
  scikit-learn for a `random_state`). Allowed is {ROUNDING["float64"]:.0e}: the same sums in another order.
* **Standard errors**: both sides draw, each with numbers of its own. Shown is the largest difference over the features,
  in standard errors of the difference over the draws on these rows; allowed are {STANDARD_ERRORS:g}. Where the model
  computes in float32, {ROUNDING["float32"]:.0e} of the largest value is allowed for rounding besides. All pairs have no
  such error: there it is the peer's alone.
* Permutations leave a row in its place once in n times, our shifts and pairs never: ours times (n - 1)/n is compared.

## Notes

* `pairs="all"` is what the permutations of a peer estimate, without their noise. It has a row where the structure of
  the model makes it cheap (linear models, trees); otherwise it costs n / K times as many model rows.
* captum permutes once a call and is called K times, without gradients.
* fippy's `pfi` draws donors with replacement: that is `ablation_importance`. Its Gaussian sampler adds normal residuals
  to a linear mean: `rl.samplers.Gaussian(draws="normal")` ("normal" in the table). Residuals of other rows, our default
  ("donors"), have the same expectation for a linear model under squared error, and are compared there only. fippy's
  sampler draws row by row in Python, which most of its ratios come from.
* hidimstat's CFI is given least squares for the mean of a feature, as ours has; its default is a ridge regression.
* SAGE shares the risk out among features over all orders, which is other work in general. For an additive model,
  uncorrelated features and squared error its value is half the permutation importance. The row checks that, on columns
  that are orthogonal, within {STANDARD_ERRORS:g} of SAGE's own standard errors; it stops when the largest of them is
  below 2.5% of the range of its values. The ratio says what the general way costs where the short one would do, not
  that the two do the same everywhere.
* alibi's `PermutationImportance` has no row: alibi 0.9.6 asks for NumPy below 2 and pandas below 3, which does not go
  together with the others.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("peers", nargs="*", help=", ".join(CASES))
    parser.add_argument("--quick", action="store_true", help="tiny sizes; the page is not written")
    parser.add_argument("--write", action="store_true", help="write docs/benchmarks.md also after --quick")
    options = parser.parse_args()
    unknown = set(options.peers) - set(CASES)
    if unknown:
        raise SystemExit(f"unknown peer {sorted(unknown)[0]!r}: choose from {', '.join(CASES)}")
    if options.write and options.peers:
        raise SystemExit("--write with some peers only: the page holds one run of all of them")
    size = plain.QUICK if options.quick else Sizes()
    rows: list[Row] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the convergence of the models is not the subject
        for peer in options.peers or CASES:
            for make in CASES[peer]:
                for row in measure(make(size)):
                    rows.append(row)
                    print(
                        f"{row.peer + ', ' + row.work:<100} {row.ours:<46} {row.agreement:<20} "
                        f"{row.theirs_seconds:8.4f} s / {row.ours_seconds:8.4f} s = {number(row.ratio)}",
                        flush=True,
                    )
    if options.write or not (options.quick or options.peers):
        PAGE.write_text(page(rows, "python benchmarks/peers.py" + (" --quick --write" if options.quick else "")))
        print(f"written: docs/{PAGE.name}")


if __name__ == "__main__":
    main()
