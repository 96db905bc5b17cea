"""A call that names no loss takes the one that fits the model, and says why; what does not fit is refused by name."""

from __future__ import annotations

import numpy as np
import pytest

import reliance as rl

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 3))
NUMBERS = X[:, 0] + 0.5 * RNG.normal(size=60)
LABELS = (NUMBERS > 0).astype(np.int64)
WORDS = np.where(LABELS == 1, "yes", "no")
THREE = np.digitize(NUMBERS, [-0.5, 0.5])


def measured(model, y, X=X, **options):
    return rl.permutation_importance(model, X, y, draws=3, rng=0, **options)


def log_loss(model, y):
    """By hand, of the rows as they are."""
    places = np.searchsorted(model.classes_, y)
    return -np.mean(np.log(model.predict_proba(X)[np.arange(len(y)), places]))


@pytest.mark.parametrize("y", [LABELS, WORDS, THREE], ids=["numbers", "text", "three"])
def test_a_classifier_with_probabilities(y) -> None:
    linear_model = pytest.importorskip("sklearn.linear_model")
    model = linear_model.LogisticRegression().fit(X, y)
    result = measured(model, y)
    assert (result.loss, result.why_loss) == ("log_loss", "the default for a classifier with probabilities")
    assert result.base_risk == pytest.approx(log_loss(model, y))
    assert "the default for a classifier with probabilities" in repr(result)
    assert measured(model, y, loss="log_loss").why_loss == ""


def test_a_classifier_without_probabilities() -> None:
    svm = pytest.importorskip("sklearn.svm")
    model = svm.LinearSVC().fit(X, LABELS)
    result = measured(model, LABELS)
    assert (result.loss, result.base_risk) == ("zero_one", pytest.approx(np.mean(model.predict(X) != LABELS)))


def test_pipelines_and_searches_are_what_they_end_with() -> None:
    pipeline = pytest.importorskip("sklearn.pipeline")
    from sklearn.linear_model import LogisticRegression, Ridge
    from sklearn.model_selection import GridSearchCV
    from sklearn.preprocessing import StandardScaler

    classifier = pipeline.make_pipeline(StandardScaler(), LogisticRegression()).fit(X, LABELS)
    regressor = GridSearchCV(Ridge(), {"alpha": [1.0, 2.0]}, cv=2).fit(X, NUMBERS)
    assert measured(classifier, LABELS).loss == "log_loss"
    assert measured(regressor, NUMBERS).why_loss == "the default for a regressor"


@pytest.mark.parametrize("library", ["lightgbm", "xgboost", "catboost"])
def test_boosted_trees(library: str) -> None:
    module = pytest.importorskip(library)
    prefix = {"lightgbm": "LGBM", "xgboost": "XGB", "catboost": "CatBoost"}[library]
    quiet = {"lightgbm": {"verbose": -1, "n_jobs": 1}, "xgboost": {}, "catboost": {"verbose": 0}}[library]
    quiet |= {"allow_writing_files": False} if library == "catboost" else {}
    classifier = getattr(module, f"{prefix}Classifier")(n_estimators=3, **quiet).fit(X, LABELS)
    regressor = getattr(module, f"{prefix}Regressor")(n_estimators=3, **quiet).fit(X, NUMBERS)
    assert measured(classifier, LABELS).loss == "log_loss"
    assert measured(regressor, NUMBERS).loss == "squared_error"


@pytest.mark.once_per_device
def test_functions_go_by_the_labels(backend) -> None:
    rows, numbers, labels = (backend.asarray(a) for a in (X, NUMBERS, LABELS))
    result = measured(lambda x: x[:, 0], numbers, rows)
    assert (result.loss, result.why_loss) == ("squared_error", "the default for numbers")
    assert result.base_risk == pytest.approx(np.mean((X[:, 0] - NUMBERS) ** 2), rel=1e-5)
    with pytest.raises(ValueError, match=r"loss='cross_entropy' if these are logits.*'log_loss' if they are prob"):
        measured(lambda x: x[:, :2], labels, rows)
    assert measured(lambda x: x[:, :2], labels, rows, loss="cross_entropy").loss == "cross_entropy"


def test_a_torch_module_of_logits() -> None:
    torch = pytest.importorskip("torch")
    net, rows, labels = torch.nn.Linear(3, 2), torch.as_tensor(X, dtype=torch.float32), torch.as_tensor(LABELS)
    with pytest.raises(ValueError, match="cross_entropy"):
        measured(net, labels, rows)


def test_text_labels_of_a_function() -> None:
    def answers(x):
        return np.where(x[:, 0] > 0, "yes", "no")

    result = measured(answers, WORDS)
    assert (result.loss, result.base_risk) == ("zero_one", pytest.approx(np.mean(answers(X) != WORDS)))


def test_no_labels_and_no_loss() -> None:
    with pytest.raises(ValueError, match=r"y is None.*prediction_shift"):
        rl.permutation_importance(lambda x: x[:, 0], X)


def test_a_forest_is_told_of_log_loss() -> None:
    ensemble = pytest.importorskip("sklearn.ensemble")
    forest = ensemble.RandomForestClassifier(5, random_state=0).fit(X, LABELS)
    with pytest.raises(TypeError, match=r"has no decision_function.*loss='log_loss'"):
        measured(forest, LABELS, loss="cross_entropy")
    result = rl.out_of_bag_importance(forest, X, LABELS, rng=0)
    assert (result.loss, result.why_loss) == ("zero_one", "the default for the trees of a classifier")


def test_refits_are_judged_by_what_the_estimator_will_be() -> None:
    linear_model = pytest.importorskip("sklearn.linear_model")
    estimator = linear_model.LogisticRegression()
    assert rl.algorithm_reliance(estimator, X, LABELS, cv=3, rng=0).loss == "log_loss"
    assert rl.cross_validated_importance(estimator, X, LABELS, cv=3, rng=0, draws=3).loss == "log_loss"

    def fit(rows, y):
        return lambda x: x[:, 0]

    assert rl.algorithm_reliance(fit, X, NUMBERS, cv=3, rng=0).loss == "squared_error"
    with pytest.raises(ValueError, match="fit is a function that may fit classifiers"):
        rl.algorithm_reliance(fit, X, LABELS, cv=3, rng=0)


def test_a_list_of_models_has_one_loss() -> None:
    linear_model = pytest.importorskip("sklearn.linear_model")
    classifier, regressor = linear_model.LogisticRegression().fit(X, LABELS), linear_model.Ridge().fit(X, LABELS)
    assert rl.FiniteClass([classifier]).loss == "log_loss"
    assert rl.FiniteClass([regressor]).loss == "squared_error"
    with pytest.raises(ValueError, match="'log_loss' and 'squared_error' would fit some of them"):
        rl.FiniteClass([classifier, regressor])
