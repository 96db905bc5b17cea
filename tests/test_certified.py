"""Certified means certified: over many random problems no good model, found or drawn, is beyond the certified range."""

from __future__ import annotations

import numpy as np
import pytest

import reliance as rl
from reliance.rashomon.kernel import KernelModel

METHODS = (rl.model_class_reliance, rl.conditional_model_class_reliance)
# 500 problems of each class; of those that take long only some when tests have to be fast.
FEW, MANY = 30, pytest.param(500, marks=pytest.mark.slow)


def problem(rng, k):
    """Few rows; among them near-collinear and equal columns, zero coefficients, p = 1 and n just above p."""
    p = int(rng.integers(1, 4))
    n = int(rng.integers(p + 2, p + 9))
    X = rng.normal(size=(n, p)) @ rng.normal(size=(p, p)) + rng.choice([0.0, 10.0])
    if p > 1 and k % 5 == 0:
        X[:, 1] = X[:, 0] + 1e-3 * rng.normal(size=n)
    y = X @ (rng.normal(size=p) * rng.choice([0.0, 1.0])) + rng.normal(size=n)
    if k % 5 == 1:  # the least squares coefficient of the first column is 0: the hard case
        rest = np.column_stack([np.ones(n), X[:, 1:]])
        left = X[:, 0] - rest @ np.linalg.lstsq(rest, X[:, 0])[0]
        y = y - left * (left @ y) / (left @ left)
    columns = (0, 1) if p > 1 and k % 3 == 0 else (int(rng.integers(0, p)),)
    return X, y, columns


def all_pairs(X, columns, conditional):
    """(n, n, p): row i with the feature of donor k."""
    n, own = len(X), list(columns)
    kept = np.zeros((n, len(own)))
    if conditional:
        rest = np.column_stack([np.ones(n), np.delete(X, own, axis=1)])
        kept = rest @ np.linalg.lstsq(rest, X[:, own])[0]
    pairs = np.repeat(X[:, None, :], n, axis=1)
    pairs[:, :, own] = kept[:, None, :] + (X[:, own] - kept)[None, :, :]
    return pairs


class Judge:
    """Risk, norm and reliance of models ``intercept + functions(x) @ coef``, by literal means over rows and pairs."""

    def __init__(self, X, y, columns, conditional, functions, norm, intercept):
        n = len(X)
        pairs = all_pairs(X, columns, conditional)[~np.eye(n, dtype=bool)]
        one = [1.0] if intercept else []
        self.rows, self.pairs = (np.array([[*one, *row] for row in functions(Z)]) for Z in (X, pairs))
        self.y, self.labels = y, np.repeat(y, n - 1)
        self.norm = np.pad(norm, (len(one), 0))
        self.axes = np.linalg.pinv(np.linalg.cholesky(self.rows.T @ self.rows / n + 1e-9 * np.eye(len(self.norm))))

    def risk(self, theta):
        return np.mean((self.y - self.rows @ theta) ** 2)

    def size(self, theta):
        return theta @ self.norm @ theta

    def reliance(self, theta, compare):
        switched, risk = np.mean((self.labels - self.pairs @ theta) ** 2), self.risk(theta)
        return switched / risk if compare == "ratio" else switched - risk

    def drawn(self, rng, start, bound, square):
        """A member on a random line through one: on the edge of the set, or between."""
        step = self.axes.T @ rng.normal(size=len(start))
        left, moved = self.y - self.rows @ start, self.rows @ step
        ends = [_root(np.mean(moved**2), -np.mean(left * moved), np.mean(left**2) - bound)]
        ends.append(_root(step @ self.norm @ step, start @ self.norm @ step, self.size(start) - square))
        return start + min(ends) * rng.choice([1.0, rng.random()]) * step


def _root(a, b, c):
    """The positive s with a s^2 + 2 b s + c = 0, c <= 0."""
    if a <= 0.0:
        return np.inf
    return (-b + np.sqrt(max(b * b - a * min(c, 0.0), 0.0))) / a


def check(judge, found, compare, thetas, square, rng, slack):
    """The achieved models are members, and they and random members are in the range."""
    for theta, value in zip(thetas, (found.achieved_lower[0], found.achieved_upper[0]), strict=True):
        assert judge.risk(theta) <= found.bound * (1 + slack)
        # Landmarks that are almost the same have large coefficients that cancel: the norm has that much rounding.
        rounding = 4 * np.finfo(float).eps * (np.abs(theta) @ np.abs(judge.norm) @ np.abs(theta))
        assert judge.size(theta) <= square * (1 + 1e-9) + rounding
        np.testing.assert_allclose(value, judge.reliance(theta, compare), rtol=slack, atol=slack)
    assert found.lower[0] <= found.achieved_lower[0] <= found.achieved_upper[0] <= found.upper[0]
    middle, several = (thetas[0] + thetas[1]) / 2, found.bound > found.reference_risk
    members = [judge.drawn(rng, start, found.bound, square) for start in (*thetas, middle, middle) if several]
    for theta in [*thetas, *members]:
        value = judge.reliance(theta, compare)
        room = slack * max(1.0, abs(value))
        assert found.lower[0] - room <= value <= found.upper[0] + room


def question(rng, k):
    """Which of the four questions, and how good models have to be: the best alone, or nearly any."""
    epsilon = 0.0 if k % 25 == 0 else float(10 ** rng.uniform(-4, 3))
    return METHODS[k // 2 % 2], ("ratio", "difference")[k % 2], epsilon


def check_linear(problems, ball):
    rng = np.random.default_rng(int(ball))
    for k in range(problems):
        X, y, columns = problem(rng, k)
        method, compare, epsilon = question(rng, k)
        intercept, radius, square = bool(k % 7), None, np.inf
        if ball:
            if k % 4 == 3:
                X = np.column_stack([X, X[:, 0]])
            free = np.linalg.norm(np.linalg.lstsq(X - X.mean(axis=0), y)[0])
            radius = float(max(free, 1e-3) * rng.choice([0.3, 0.9, 1.05, 3.0]))
            square = radius**2
        kind = rl.LinearClass(ridge=radius, intercept=intercept)
        found = method(kind, X, y, epsilon=epsilon, compare=compare, features=[columns])
        judge = Judge(X, y, columns, method is METHODS[1], lambda Z: Z, np.eye(X.shape[1]), intercept)
        thetas = [
            np.append([model.intercept] if intercept else [], model.coef)
            for model in (found.lower_models[0], found.upper_models[0])
        ]
        check(judge, found, compare, thetas, square, rng, slack=1e-7 if k % 5 == 0 else 1e-9)


@pytest.mark.slow
def test_linear():
    check_linear(500, ball=False)


@pytest.mark.parametrize("problems", [FEW, MANY])
def test_ridge(problems):
    check_linear(problems, ball=True)


def wave(X, C):
    """A kernel that is no product over columns."""
    return np.exp(-np.sqrt(np.sum((X[:, None, :] - C[None, :, :]) ** 2, axis=2)))


@pytest.mark.parametrize("problems", [FEW, MANY])
def test_kernel(problems):
    rng = np.random.default_rng(2)
    for k in range(problems):
        kernel = ("rbf", "polynomial", wave)[k % 3]
        X, y, columns = problem(rng, k)
        X = X / np.abs(X).max()
        method, compare, epsilon = question(rng, k)
        radius = float(10 ** rng.uniform(-1, 1))
        kind = rl.KernelClass(kernel, landmarks=min(int(rng.integers(1, 5)), len(X) - 2), radius=radius)
        found = method(kind, X, y, epsilon=epsilon, compare=compare, features=[columns])
        models = (found.lower_models[0], found.upper_models[0])
        model = models[0]
        assert isinstance(model, KernelModel)
        C = model.landmarks
        judge = Judge(
            X, y, columns, method is METHODS[1], lambda Z, m=model, C=C: m.kernel(Z, C), model.kernel(C, C), True
        )
        thetas = [np.append(model.intercept, model.coefficients) for model in models]
        check(judge, found, compare, thetas, radius**2, rng, slack=1e-7)
