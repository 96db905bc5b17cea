"""What is known of a problem's model before it is called: its coefficients or its trees, and the columns it uses."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from reliance.engine.problems import Problem
from reliance.models import additive, calling
from reliance.models.additive import AdditiveForm
from reliance.models.ensembles import Ensemble
from reliance.models.several_scores import SeveralScores
from reliance.models.several_scores import several_scores as found_scores

Floats = NDArray[np.float64]


def linear_form(problem: Problem) -> tuple[Floats, float] | None:
    """Coefficients and intercept of a model of these rows that is known to be linear, and takes them as numbers."""
    if problem.rows.coded or problem.model.method not in (None, "predict"):
        return None
    form = calling.linear_form(problem.model.source)
    return None if form is None or form[0].shape != (problem.flat.shape[1],) else form


def additive_form(problem: Problem) -> AdditiveForm | None:
    """The effects of single columns on the score of a model that is known to be additive, and takes numbers."""
    if problem.rows.coded or len(problem.store.shape) != 1:
        return None
    linear = linear_form(problem)
    if linear is not None:
        return additive.of_coefficients(*linear)
    model = problem.model
    return additive.additive_form(model.source, model.method, model.parts, int(problem.flat.shape[1]))


def several_scores(problem: Problem) -> SeveralScores | None:
    """The scores of a linear model that is known to have several, and takes numbers."""
    if problem.rows.coded or len(problem.store.shape) != 1:
        return None
    model = problem.model
    return found_scores(model.source, model.method, int(problem.flat.shape[1]))


def ensemble(problem: Problem) -> Ensemble | None:
    """The trees of a model of these rows that is known to be an ensemble of them."""
    found = calling.ensemble_of(problem.model)
    return None if found is None or found.n_features != problem.flat.shape[1] else found


def used_columns(problem: Problem) -> set[int] | None:
    """The columns that a linear model or an ensemble of trees uses; None of any other model."""
    form = linear_form(problem)
    if form is not None:
        return set(np.flatnonzero(form[0]).tolist())
    trees = ensemble(problem)
    return None if trees is None else set(np.unique(trees.feature[trees.feature >= 0]).tolist())
