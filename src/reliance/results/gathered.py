"""One result from the summaries of its features."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reliance.inference.summary import Summary
from reliance.results.curves import Curve
from reliance.results.importance import ERRORS, Importance
from reliance.results.influence import Influence

Floats = NDArray[np.float64]


def from_summaries(
    names: Sequence[str],
    summaries: Sequence[Summary],
    *,
    base_risk: float,
    compare: str,
    method: str,
    loss: str,
    why_loss: str = "",
    why_routes: Sequence[str] = (),
    exchangeable: bool = True,
    plan: str,
    units: int,
    n: int,
    draws_per_row: int,
    evaluations: Sequence[int],
    routes: Sequence[str],
    block: tuple[int, ...] | None,
    key: int,
    keep_rows: bool,
    curves: dict[str, Curve] | None = None,
    stopped: str = "",
    influence: Influence | None = None,
    replaced_by: str = "",
) -> Importance:
    """The result of p features that were measured together."""
    errors: dict[str, Any] = {name: np.asarray([getattr(s, name) for s in summaries]) for name in ERRORS}
    return Importance(
        names=tuple(names),
        values=np.asarray([s.value for s in summaries]),
        compare=compare,
        base_risk=float(base_risk),
        replaced_risk=np.asarray([s.replaced_risk for s in summaries]),
        draws=stacked([s.draws for s in summaries]),
        row_values=stacked([s.row_values for s in summaries]) if keep_rows else None,
        n=n,
        evaluations=np.asarray(evaluations, dtype=np.int64),
        routes=tuple(routes),
        block=block,
        key=key,
        method=method,
        loss=loss,
        why_loss=why_loss,
        why_routes=tuple(why_routes),
        exchangeable=exchangeable,
        plan=plan,
        units=units,
        unit_values=stacked([s.unit_values for s in summaries]) if keep_rows else None,
        draws_per_row=draws_per_row,
        curves=curves,
        stopped=stopped,
        influence=influence,
        replaced_by=replaced_by,
        **errors,
    )


def stacked(parts: Sequence[Floats | None]) -> Floats | None:
    """``(p, K)``, nan where a feature has none of what others have; None if none has any."""
    known = next((part for part in parts if part is not None), None)
    return None if known is None else np.stack([np.full_like(known, math.nan) if p is None else p for p in parts])
