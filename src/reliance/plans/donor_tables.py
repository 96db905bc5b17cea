"""The donors of a plan as a table ``(n, K)``, for those who call the model themselves."""

from __future__ import annotations

import numpy as np

from reliance._core import arrays
from reliance._core.checks import check_draws
from reliance._core.kinds import Array
from reliance._core.streams import Indices
from reliance.data.features import Feature
from reliance.plans.lent import Groups, Within
from reliance.plans.orderings import Orders
from reliance.plans.ranked import Ranked


def ranked_donors(values: Array, draws: int, key: int) -> Indices:
    """Which row lends to which if donors are sorted by a feature and every row borrows once from each stretch.

    These are the donors of `reliance.permutation_importance` for a feature with these values and this key. They are
    made on the host; move them to the device once and pass them to `lent_risk`.

    Parameters
    ----------
    values : array (n,) or (n, g)
        One column, or the g columns of a group. One is sorted by value, equal values in random order, missing ones
        last; two or three columns by a k-d tree, more along a Morton curve.
    draws : int
        K, how many donors each row has.
    key : int
        The same key gives the same donors on every backend.

    Returns
    -------
    numpy.ndarray (n, K) of int64
        Each column is a permutation of the rows. A row may be its own donor.

    Examples
    --------
    >>> import numpy as np
    >>> values = np.array([5.0, 1.0, 4.0, 2.0, 3.0, 0.0])
    >>> donors = ranked_donors(values, 2, key=0)
    >>> np.sort(values[donors] >= 3.0, axis=1).tolist()  # each row: one of the smaller values, one of the larger
    [[False, True], [False, True], [False, True], [False, True], [False, True], [False, True]]
    """
    host = arrays.to_host(values) if arrays.is_array(values) else np.asarray(values)
    if host.ndim not in (1, 2) or host.shape[0] < 2 or host.size == 0:
        raise ValueError(f"values has shape {tuple(host.shape)}: pass (n,) or (n, g), with at least two rows")
    n, columns = int(host.shape[0]), host.reshape(host.shape[0], -1)
    plan = Ranked(n, check_draws(draws), key, Orders(n, key, lambda feature: columns))
    return plan.part(Feature("values", tuple(range(columns.shape[1])))).donors(range(n), range(plan.draws))


def within_donors(labels: Array, draws: int, key: int) -> Indices:
    """Which row lends to which if rows borrow from others of the same label: those of ``rl.Donors(within=labels)``.

    Parameters
    ----------
    labels : array (n,)
        Of the rows: a class, a domain, a length.
    draws : int
        K, how many donors each row has.
    key : int
        The same key gives the same donors on every backend.

    Returns
    -------
    numpy.ndarray (n, K) of int64
        Never the row itself, unless it is alone with its label.

    Examples
    --------
    >>> import numpy as np
    >>> within_donors(np.array([0, 1, 0, 1]), 1, key=0).tolist()
    [[2], [3], [0], [1]]
    """
    host = arrays.to_host(labels) if arrays.is_array(labels) else np.asarray(labels)
    if host.ndim != 1 or host.size < 2:
        raise ValueError(f"labels has shape {tuple(host.shape)}: pass (n,), one for each of at least two rows")
    group = np.unique(host, return_inverse=True)[1]
    plan = Within(len(group), check_draws(draws), key, Groups(group, group))
    return plan.donors(range(plan.n), range(plan.draws))
