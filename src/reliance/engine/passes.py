"""How often rows that are read in blocks are read, before they are: as the units of the work fill their blocks."""

from __future__ import annotations

from itertools import pairwise

from reliance import plans
from reliance._core.checks import warn
from reliance.engine.units import Work


def rows_read(work: Work) -> int:
    """Rows that one worker reads for all units, the columns that lend included; 0 if they are there anyway."""
    if not work.problem.store.pass_bytes:
        return 0
    return sum(work.plan.n + _filled(work, number) for number in range(len(work.batches)))


def announce(work: Work) -> None:
    """Say that rows are read more often than they need be, for want of memory, before it is done."""
    size, features = work.problem.store.pass_bytes, [len(batch.features) for batch in work.batches]
    if not size or len(features) == 1:
        return
    passes = rows_read(work) / work.plan.n
    warn(
        f"X is read {passes:.0f} times, {passes * size / 1e9:.2g} GB in all: memory={work.problem.memory} holds "
        f"columns and sums of {features[0]} of {sum(features)} features at a time; with a larger memory= of rl.Run it "
        "is read less often"
    )


def _filled(work: Work, number: int) -> int:
    """Rows that blocks of a batch are filled with. One that holds the same rows already is not filled again."""
    plan, (height, width) = work.plan, work.batches[number].shape
    total, held = 0, (range(0), 0)
    for unit in work.cut(number):
        rows = unit.part.rows
        widths = [len(tile.columns) for tile in plans.tiles(plan, (len(rows), width), unit.part)]
        one = len(rows) <= height
        # Strip by strip, all columns of a strip from one filled block; or column by column, in several blocks.
        fills = 1 + sum(a != b for a, b in pairwise(widths)) if one or plan.rectangular else len(widths)
        total += (fills - (one and held == (rows, widths[0]))) * len(rows)
        held = (rows if one else range(0), widths[-1])
    return total
