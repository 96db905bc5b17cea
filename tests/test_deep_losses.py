"""Losses of tokens, masks, distributions and survival times, and losses of torch and optax as they are.

Oracles: torch's own losses, scipy's distributions, double loops.
"""

from __future__ import annotations

import functools

import numpy as np
import pytest
from scipy import integrate, special, stats

import reliance as rl
from reliance.losses import distributions, survival
from reliance.losses.functions import resolve, row_losses

torch = pytest.importorskip("torch")
F = torch.nn.functional
RNG = np.random.default_rng(4)
N, T, C = 6, 5, 4
LOGITS = RNG.normal(size=(N, T, C))
TOKENS = RNG.integers(0, C, size=(N, T))
TOKENS[:, 3:] = np.where(RNG.uniform(size=(N, 2)) < 0.6, -100, TOKENS[:, 3:])
MASKS = (RNG.uniform(size=(N, 3, 4)) < 0.4).astype(float)
CHANCES = RNG.uniform(size=(N, 3, 4))


def by_row(function, prediction, y, **options):
    """A loss of torch, called with one row at a time."""
    rows = zip(torch.tensor(prediction), torch.tensor(y), strict=True)
    return np.array([float(function(p[None], t[None], **options)) for p, t in rows])


@pytest.mark.once_per_device
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
@pytest.mark.parametrize("axis", [1, -1])
def test_tokens(backend, axis, smoothing):
    loss = rl.losses.token_cross_entropy(axis=axis, smoothing=smoothing)
    logits = np.moveaxis(LOGITS, -1, axis)
    expected = by_row(F.cross_entropy, np.moveaxis(LOGITS, -1, 1), TOKENS, label_smoothing=smoothing)
    found = row_losses(loss, backend.asarray(TOKENS), backend.asarray(logits))
    backend.assert_close(np.asarray(rl._core.arrays.to_host(found)), expected)


def test_other_labels_against_torch():
    soft = special.softmax(RNG.normal(size=(N, T, C)), axis=-1)
    expected = by_row(F.cross_entropy, np.moveaxis(LOGITS, -1, 1), np.moveaxis(soft, -1, 1))
    np.testing.assert_allclose(rl.losses.soft_cross_entropy().rows(soft, LOGITS), expected)
    several = (RNG.uniform(size=(N, T, C)) < 0.3).astype(float)
    expected = by_row(F.binary_cross_entropy_with_logits, 30 * LOGITS, several)
    np.testing.assert_allclose(row_losses(rl.losses.binary_cross_entropy, several, 30 * LOGITS), expected)


def test_masks_by_loops():
    for i, (dice, iou) in enumerate(
        zip(row_losses(rl.losses.dice(), MASKS, CHANCES), row_losses(rl.losses.iou(), MASKS, CHANCES), strict=True)
    ):
        y, p = MASKS[i].ravel(), CHANCES[i].ravel()
        np.testing.assert_allclose(dice, 1 - (2 * sum(y * p) + 1) / (sum(y) + sum(p) + 1))
        inside = {k for k in range(12) if y[k]}
        found = {k for k in range(12) if p[k] > 0.5}
        np.testing.assert_allclose(iou, 1 - len(inside & found) / len(inside | found))
    nothing = np.zeros((1, 3))
    assert rl.losses.iou().rows(nothing, nothing).tolist() == [0.0]


def test_distributions():
    x = np.concatenate([np.linspace(-8, 8, 4001), [0.0, 3.0, -3.0]])
    np.testing.assert_allclose(distributions.erf(x), special.erf(x), rtol=4e-15)
    y, mean, scale = RNG.normal(size=5), RNG.normal(size=5), RNG.uniform(0.3, 2.0, size=5)
    prediction = np.stack([mean, scale], axis=-1)
    np.testing.assert_allclose(rl.losses.gaussian_nll.rows(y, prediction), -stats.norm.logpdf(y, mean, scale))
    for k, crps in enumerate(rl.losses.gaussian_crps.rows(y, prediction)):  # the integral of (F(x) - 1{y <= x})^2
        below, _ = integrate.quad(lambda x, k=k: stats.norm.cdf(x, mean[k], scale[k]) ** 2, -np.inf, y[k])
        above, _ = integrate.quad(lambda x, k=k: stats.norm.sf(x, mean[k], scale[k]) ** 2, y[k], np.inf)
        np.testing.assert_allclose(crps, below + above, rtol=1e-6)


# ---------------------------------------------------------------------------------------------------------------------
# Survival

TIMES = np.array([3.0, 1.0, 2.0, 2.0, 5.0, 4.0, 2.0, 6.0])
EVENTS = np.array([1.0, 0.0, 1.0, 1.0, 0.0, 1.0, 0.0, 1.0])
SURVIVAL = np.stack([TIMES, EVENTS], axis=1)
SCORES = np.array([0.3, -0.2, 1.1, 0.3, -0.5, 0.3, 0.0, -1.0])


def partial_likelihood(scores, w):
    total = 0.0
    for i in range(len(scores)):
        if EVENTS[i]:
            total += w[i] * (
                np.log(sum(w[j] * np.exp(scores[j]) for j in range(8) if TIMES[j] >= TIMES[i])) - scores[i]
            )
    return total / sum(w)


def harrell(scores, w):
    good = pairs = 0.0
    for i in range(8):
        for j in range(8):
            if EVENTS[i] and TIMES[i] < TIMES[j]:
                pairs += w[i] * w[j]
                good += w[i] * w[j] * (1.0 if scores[i] > scores[j] else 0.5 if scores[i] == scores[j] else 0.0)
    return 1.0 - good / pairs


@pytest.mark.parametrize(
    ("metric", "literal"), [(rl.losses.cox_likelihood, partial_likelihood), (rl.losses.c_index, harrell)]
)
def test_survival_metrics_and_their_influence(metric, literal):
    """The influence of a row is the derivative of the metric in its weight."""
    w = np.array([1.0, 2.0, 0.5, 1.0, 1.5, 1.0, 0.7, 1.2])
    np.testing.assert_allclose(metric.value(SURVIVAL, SCORES), literal(SCORES, np.ones(8)))
    np.testing.assert_allclose(metric.value(SURVIVAL, SCORES, w), literal(SCORES, w))
    pseudo = metric.influence(SURVIVAL, SCORES, w)
    np.testing.assert_allclose(np.average(pseudo, weights=w), literal(SCORES, w))
    for i in range(8):
        step = np.zeros(8)
        step[i] = 1e-5
        slope = (literal(SCORES, w + step) - literal(SCORES, w - step)) / 2e-5
        expected = literal(SCORES, w) + w.sum() * slope
        if metric is rl.losses.cox_likelihood:  # the log of a sum over all rows grows with all weights together
            expected -= np.average(EVENTS, weights=w)
        np.testing.assert_allclose(pseudo[i], expected, rtol=1e-6)


def test_brier_scores_by_a_loop():
    at = 3.5
    expected = []
    for t, event, p in zip(TIMES, EVENTS, special.expit(SCORES), strict=True):
        before, by_then = 1.0, 1.0
        for time in np.unique(TIMES):  # Kaplan and Meier, of being censored
            lost = np.sum((time == TIMES) & (EVENTS == 0))
            step = 1 - lost / max(np.sum(time <= TIMES) - np.sum((time == TIMES) & (EVENTS == 1)), 1)
            before *= step if time < t else 1.0
            by_then *= step if time <= at else 1.0
        expected.append(p**2 / before if t <= at and event else (1 - p) ** 2 / by_then if t > at else 0.0)
    loss = rl.losses.survival_brier(at, SURVIVAL)
    np.testing.assert_allclose(row_losses(loss, SURVIVAL, special.expit(SCORES)), expected)
    assert survival.steps_at(*survival.censoring(SURVIVAL), 0.5) == 1.0


@pytest.mark.once_per_device
def test_survival_on_every_backend(backend):
    X = np.random.default_rng(0).normal(size=(40, 2))
    times = np.exp(-X[:, 0] + 0.2 * X[:, 1])
    y = np.stack([times, (np.arange(40) % 4 > 0).astype(float)], axis=1)
    losses = [rl.losses.cox_likelihood, rl.losses.c_index]
    found = rl.permutation_importance(
        lambda Z: Z[:, 0], backend.asarray(X), backend.asarray(y), loss=losses, draws=5, rng=0
    )
    for one in found.values():
        assert one.values[0] > 0.1
        assert one.values[1] == 0.0
        assert one.interval()[0, 0] > 0.0


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("metric", [rl.losses.cox_likelihood, rl.losses.c_index], ids=lambda one: one.name)
def test_survival_coverage(metric):
    """Against the value on a large sample."""

    def sample(rng, n):
        X = rng.normal(size=(n, 2))
        time, censored = rng.exponential(np.exp(-X @ [0.8, 0.4])), rng.exponential(2.0, size=n)
        return X, np.stack([np.minimum(time, censored), (time <= censored).astype(float)], axis=1)

    def model(X):
        return X @ [0.7, 0.5]

    X, y = sample(np.random.default_rng(99), 4000)
    truth = rl.permutation_importance(model, X, y, loss=metric, draws=3, rng=0).values
    inside = np.zeros(2)
    for seed in range(150):
        X, y = sample(np.random.default_rng(seed), 120)
        low, high = rl.permutation_importance(model, X, y, loss=metric, draws=8, rng=seed).interval().T
        inside += (low <= truth) & (truth <= high)
    assert np.all(inside / 150 > 0.9), inside / 150


# ---------------------------------------------------------------------------------------------------------------------
# Losses of torch and optax

X = RNG.normal(size=(20, 3)).astype(np.float32)
LABELS = RNG.integers(0, 3, size=20)
NUMBERS = RNG.normal(size=20).astype(np.float32)
THEIRS = {
    "CrossEntropyLoss": (torch.nn.CrossEntropyLoss(), 3, LABELS, "cross_entropy"),
    "CrossEntropyLoss, smooth": (
        torch.nn.CrossEntropyLoss(label_smoothing=0.1), 3, LABELS, rl.losses.token_cross_entropy(smoothing=0.1)
    ),
    "F.cross_entropy": (F.cross_entropy, 3, LABELS, "cross_entropy"),
    "partial": (functools.partial(F.cross_entropy, reduction="sum"), 3, LABELS, "cross_entropy"),
    "BCEWithLogitsLoss": (torch.nn.BCEWithLogitsLoss(), 1, LABELS % 2, "cross_entropy"),
    "MSELoss": (torch.nn.MSELoss(), 1, NUMBERS, "squared_error"),
    "F.l1_loss": (F.l1_loss, 1, NUMBERS, "absolute_error"),
    "SmoothL1Loss": (torch.nn.SmoothL1Loss(reduction="none"), 1, NUMBERS, "huber"),
}  # fmt: skip


@pytest.mark.parametrize("name", THEIRS)
def test_losses_of_torch_as_they_are(name):
    loss, outputs, y, ours = THEIRS[name]
    torch.manual_seed(0)
    net = torch.nn.Linear(3, outputs)
    theirs = rl.permutation_importance(net, X, y, loss=loss, draws=3, rng=0)
    expected = rl.permutation_importance(net, X, y, loss=ours, draws=3, rng=0)
    np.testing.assert_allclose(theirs.values, expected.values, rtol=1e-4, atol=1e-6)
    if isinstance(loss, torch.nn.Module):
        assert loss.reduction == THEIRS[name][0].reduction  # it is left as it was


def test_a_loss_of_torch_over_tokens_counts_what_it_does_not_ignore():
    loss = resolve(torch.nn.CrossEntropyLoss())
    expected = by_row(F.cross_entropy, np.moveaxis(LOGITS, -1, 1), TOKENS)
    found = row_losses(loss, torch.tensor(TOKENS), torch.tensor(np.moveaxis(LOGITS, -1, 1)))
    np.testing.assert_allclose(found, expected)


def test_losses_of_optax_as_they_are():
    optax, jnp = pytest.importorskip("optax"), pytest.importorskip("jax.numpy")
    scores = jnp.asarray(RNG.normal(size=(20, 3)).astype(np.float32))
    for theirs, y, ours, prediction in (
        (optax.softmax_cross_entropy_with_integer_labels, LABELS, "cross_entropy", scores),
        (optax.sigmoid_binary_cross_entropy, LABELS % 2, "cross_entropy", scores[:, 0]),
        (optax.squared_error, NUMBERS, "squared_error", scores[:, 0]),
    ):
        found, expected = (row_losses(resolve(loss), jnp.asarray(y), prediction) for loss in (theirs, ours))
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)


Y2 = np.stack([np.arange(20.0), np.ones(20)], axis=1)
REFUSED = {
    "weights of classes": (torch.nn.CrossEntropyLoss(weight=torch.ones(3)), LABELS, "weight="),
    "three arguments": (torch.nn.CosineEmbeddingLoss(), NUMBERS, "lambda y, p"),
    "not per row": (lambda y, p: p.mean(), NUMBERS, "one loss per row"),
    "empty row": (rl.losses.token_cross_entropy(), np.full(20, -100), "no label"),
    "strange label": (rl.losses.token_cross_entropy(), np.full(20, 7), "label 7"),
    "wrong axis": (rl.losses.token_cross_entropy(), np.zeros((20, 2), dtype=int), "axis"),
    "shares of classes": (rl.losses.soft_cross_entropy(), LABELS % 2, "probability for each class"),
    "mask of numbers": (rl.losses.dice(), np.full((20, 3), 3.0), "masks of 0 and 1"),
    "no scale": (rl.losses.gaussian_nll, NUMBERS, "standard deviations"),
    "no events": (rl.losses.cox_likelihood, NUMBERS, "times"),
    "all censored": (rl.losses.c_index, np.zeros((20, 2)), "censored"),
    "chances": (rl.losses.survival_brier(3.0, Y2), Y2, "one number per row"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_losses_cannot_take(name):
    loss, y, words = REFUSED[name]
    with pytest.raises((ValueError, TypeError), match=words) as caught:
        rl.permutation_importance(torch.nn.Linear(3, 3), X, y, loss=loss, draws=3, rng=0)
    assert len(str(caught.value)) <= 300


def test_a_loss_of_torch_needs_tensors():
    with pytest.raises(TypeError, match="CrossEntropyLoss is one of torch"):
        rl.permutation_importance(lambda Z: Z, X, LABELS, loss=torch.nn.CrossEntropyLoss(), draws=3)
    for loss in (rl.losses.gaussian_nll, rl.losses.gaussian_crps):
        with pytest.raises(ValueError, match="last axis of length 2"):
            loss.rows(NUMBERS, X)
    for call in (
        lambda: rl.losses.token_cross_entropy(axis=0),
        lambda: rl.losses.token_cross_entropy(smoothing=1.0),
        lambda: rl.losses.dice(smooth=-1.0),
        lambda: rl.losses.iou(threshold="half"),
        lambda: rl.losses.soft_cross_entropy(axis=0),
        lambda: rl.losses.survival_brier(np.nan, SURVIVAL),
        lambda: rl.losses.survival_brier(3.0, NUMBERS),
    ):
        with pytest.raises(ValueError, match=r"must|axis"):
            call()
