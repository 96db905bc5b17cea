"""How much any good model relies on a feature: the range of reliance over the Rashomon set of a class."""

from __future__ import annotations

from collections.abc import Sequence

from reliance._core.progress import Progress
from reliance._core.public import public
from reliance._core.run import Run
from reliance._core.streams import RandomState
from reliance.data.passed import DataLike, FeaturesLike
from reliance.rashomon import finite_samples, uncertainty_of_ends
from reliance.rashomon.protocol import ModelClass
from reliance.rashomon.question import Reference, ask
from reliance.rashomon.results import ClassReliance


@public
def model_class_reliance(
    model_class: ModelClass,
    X: DataLike,
    y: DataLike,
    *,
    epsilon: float,
    relative: bool = True,
    reference: Reference = None,
    compare: str = "ratio",
    features: FeaturesLike = None,
    names: Sequence[str] | None = None,
    rng: RandomState = None,
    run: Run | None = None,
    progress: Progress = False,
    confidence: float | None = None,
    loss_bound: float | None = None,
    uncertainty: bool | int = False,
) -> ClassReliance:
    r"""The least and the most that any good model of a class relies on a feature.

    .. math:: \mathcal R = \{f \in \mathcal F : \hat e(f) \le (1 + \epsilon)\, \hat e(f_{ref})\}, \qquad
              [MCR_-, MCR_+] = \Big[\min_{f \in \mathcal R} MR(f), \max_{f \in \mathcal R} MR(f)\Big]

    with MR over all n(n-1) pairs of rows, as in `model_reliance`.

    Parameters
    ----------
    X : array (n, P)
        NumPy, CuPy, JAX or torch; the work happens where it is.
    y : array (n,)
    compare : {"ratio", "difference"}
        Switched risk over, or minus, the risk.
    rng : int, SeedSequence or Generator, optional
        For the starts of searches and for bootstraps.
    run : Run, optional
        ``rl.Run(workers=4)``: features, samples of ``uncertainty=`` and the rows of listed models are shared out, with
        the same result. ``memory`` bounds what each worker may allocate. Other settings are not for classes of models.
    progress : bool or callable
        Show a bar, or call ``progress(done, total)``: features, or the rows that the models of a `FiniteClass` are
        called with.
    confidence : float, optional
        A level such as 0.95, for ``outer``: bounds of the range over the models that are good for *new* rows. Needs
        ``loss_bound`` and a reference that was not chosen on these rows. Usually very wide.
    loss_bound : float, optional
        What the loss of a row cannot exceed, for the reference and all good models, also with features switched.
    uncertainty : bool or int
        For ``result.interval()``: how uncertain the ends are because the rows are a sample. True: from the losses of
        the models at the ends, all pairs of each, without fitting anything again; for classes whose ends are exact. A
        number of at least 20: so many bootstrap samples of the rows, on each of which the question is asked again; for
        a `TreeClass` also ``members.distribution``, over all good trees of all samples.

    Returns
    -------
    ClassReliance

    Notes
    -----
    ``outer`` follows the proof of Theorem 4 of Fisher et al., with the least risk in the class instead of their
    constant b_orig. With probability ``confidence`` = 1 - delta, for each feature by itself, by Hoeffding's inequality
    for six means of losses in [0, B]: the models at the ends for the population are within an enlarged bound on these
    rows, their risks differ from those here by at most q1 = B sqrt(log(6/delta) / 2n), and their switched risks by
    q2 = B sqrt(log(6/delta) / 2[n/2]).

    References
    ----------
    Fisher, A., Rudin, C., Dominici, F. (2019). All models are wrong, but many are useful. JMLR 20(177).
    Rudin, C. Variable importance, Duke course notes, question 5.

    Examples
    --------
    >>> import numpy as np, reliance as rl
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(300, 2))
    >>> y = X[:, 0] + rng.normal(size=300)
    >>> result = rl.model_class_reliance(rl.LinearClass(), X, y, epsilon=0.02)
    >>> bool(1.5 < result.lower[0] < result.upper[0]), bool(result.upper[1] < 1.2)
    (True, True)
    >>> model = result.upper_models[0]  # the good model that relies most on the first feature
    >>> bool(np.isclose(rl.model_reliance(model, X, y).values[0], result.upper[0]))
    True
    """
    finite_samples.check_confidence(confidence, loss_bound, reference)
    samples = uncertainty_of_ends.check(uncertainty, model_class)
    given = (model_class, X, y, epsilon, relative, reference, compare, features, names, rng, run, progress)
    question = ask(*given, sampled=bool(samples))
    found = question.ranges(question.bound)
    known = None if samples is None else uncertainty_of_ends.measured(question, found, samples)
    errors, drawn = (None, None) if known is None else (known.errors, known.drawn)
    if confidence is None or loss_bound is None:
        return question.result(found, end_errors=errors, drawn=drawn)
    outer = finite_samples.outer(question, float(confidence), float(loss_bound))
    return question.result(found, float(confidence), outer, errors, drawn)


@public
def conditional_model_class_reliance(
    model_class: ModelClass,
    X: DataLike,
    y: DataLike,
    *,
    epsilon: float,
    relative: bool = True,
    reference: Reference = None,
    compare: str = "ratio",
    features: FeaturesLike = None,
    names: Sequence[str] | None = None,
    rng: RandomState = None,
    run: Run | None = None,
    progress: Progress = False,
) -> ClassReliance:
    r"""The least and the most that good models of a class rely on what only a feature says.

    .. math:: [CMCR_-, CMCR_+] = \Big[\min_{f \in \mathcal R} CMR(f), \max_{f \in \mathcal R} CMR(f)\Big]

    with CMR over all pairs of rows as in `conditional_model_reliance`: what the other columns predict of the feature,
    by in-sample least squares with intercept, stays with the row, the rest comes from another.

    Parameters
    ----------
    X : array (n, P)
        NumPy, CuPy, JAX or torch; the work happens where it is.
    y : array (n,)
    compare : {"ratio", "difference"}
        Switched risk over, or minus, the risk.
    rng : int, SeedSequence or Generator, optional
        For the starts of searches and for bootstraps.
    run : Run, optional
        ``rl.Run(workers=4)``: features, and the rows of listed models, are shared out, with the same result. ``memory``
        bounds what each worker may allocate. Other settings are not for classes of models.
    progress : bool or callable
        Show a bar, or call ``progress(done, total)``: features, or the rows that the models of a `FiniteClass` are
        called with.

    Returns
    -------
    ClassReliance

    Notes
    -----
    For linear models under squared error the change of risk is linear in the feature's coefficients,
    :math:`2 b_J' s_{ry}` with r the residuals of the feature, so both ends are exact.

    References
    ----------
    Fisher, A., Rudin, C., Dominici, F. (2019). All models are wrong, but many are useful. JMLR 20(177).
    Rudin, C. Variable importance, Duke course notes, question 6.

    Examples
    --------
    >>> import numpy as np, reliance as rl
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(300, 2))
    >>> X[:, 1] = X[:, 0] + 0.2 * X[:, 1]
    >>> y = X[:, 0] + rng.normal(size=300)
    >>> plain = rl.model_class_reliance(rl.LinearClass(), X, y, epsilon=0.05)
    >>> unique = rl.conditional_model_class_reliance(rl.LinearClass(), X, y, epsilon=0.05)
    >>> bool(np.all(unique.upper < plain.upper))
    True
    """
    question = ask(model_class, X, y, epsilon, relative, reference, compare, features, names, rng, run, progress, True)
    return question.result(question.ranges(question.bound))
