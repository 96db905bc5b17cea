"""Networks that take integers without holding an nn.Embedding: asked themselves, and never given anything else."""

from __future__ import annotations

import numpy as np
import pytest

import reliance as rl

torch = pytest.importorskip("torch")
F = torch.nn.functional
N, WORDS = 30, 7
RNG = np.random.default_rng(2)
TOKENS, PIXELS = RNG.integers(0, WORDS, size=(N, 4)), RNG.integers(0, 256, size=(N, 2, 2)).astype(np.uint8)
Y = RNG.normal(size=N).astype(np.float32)


class Looked(torch.nn.Module):
    """A table that is looked up by F.embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.table = torch.nn.Parameter(torch.linspace(-1.0, 2.0, WORDS * 3).reshape(WORDS, 3))

    def forward(self, ids):
        return F.embedding(ids, self.table).sum(dim=1) @ torch.tensor([1.0, -0.5, 0.25])


class OneHot(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.linspace(-1.0, 1.0, WORDS))

    def forward(self, ids):
        return (F.one_hot(ids, WORDS).float() @ self.weight).prod(dim=1)


class Pixels(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = torch.nn.Parameter(torch.tensor(2.0))

    def forward(self, image):
        assert image.dtype == torch.uint8
        return self.scale * (image.flatten(1).float() / 255.0).prod(dim=1)


def exported():
    batch = torch.export.Dim("batch", min=2)
    return torch.export.export(Looked(), (torch.tensor(TOKENS),), dynamic_shapes=({0: batch},)).module()


MODULES = {
    "F.embedding": (Looked, TOKENS),
    "one-hot": (OneHot, TOKENS),
    "uint8 images": (Pixels, PIXELS),
    "scripted": (lambda: torch.jit.script(Looked()), TOKENS),
    "exported": (exported, TOKENS),
}


def literal(net, X, donors):
    """The mean change of squared errors, column by column."""

    def losses(rows):
        with torch.no_grad():
            return (net(torch.tensor(rows)).numpy() - Y) ** 2

    flat, found = X.reshape(N, -1), []
    for column in range(flat.shape[1]):
        changes = []
        for k in range(donors.shape[1]):
            rows = flat.copy()
            rows[:, column] = flat[donors[:, k], column]
            changes.append(np.mean(losses(rows.reshape(X.shape)) - losses(X)))
        found.append(np.mean(changes))
    return np.array(found)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.parametrize(
    "kind", [pytest.param(name, marks=pytest.mark.slow if name == "exported" else ()) for name in MODULES]
)
def test_integers_stay_integers(kind):
    make, X = MODULES[kind]
    net = make()
    donors = rl.plans.Shifts(N, 3, 1).donors(range(N), range(3))
    expected = literal(net, X, donors)
    for rows, labels in ((X, Y), (torch.tensor(X), torch.tensor(Y))):
        found = rl.permutation_importance(net, rows, labels, draws=rl.Draws(3, design="shifts"), rng=1)
        np.testing.assert_allclose(found.values, expected, rtol=1e-4, atol=1e-6)


def test_samplers_draw_tokens_from_other_rows():
    """A mean plus a residual is no token."""
    net = Looked()
    for found in (
        rl.relative_importance(net, TOKENS, Y, given=[1], features=[0], draws=3, rng=0),
        rl.conditional_model_reliance(net, TOKENS, Y, features=[0], pairs=3, rng=0),
    ):
        assert found.routes == ("leaves",)
        assert np.isfinite(found.values).all()
