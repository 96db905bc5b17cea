"""Networks: ratios of times, each of two ways to the same numbers, which are compared first.

    python benchmarks/deep.py                  all parts
    python benchmarks/deep.py captum layers    some of them
    python benchmarks/deep.py --quick          sizes that only show that it runs

*captum* is its FeatureAblation with permuted rows for a baseline, at its best ``perturbations_per_eval``. Every time is
the best of alternating runs on one thread; captum is also compared on two.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch

import reliance as rl

RUNS, SEED = 5, 20190601
# Of captum, whose slowest settings take several times as long as its best.
PEER_RUNS = 3
Timed = Callable[[], Any]


def best(*ways: Timed, runs: int = RUNS) -> list[float]:
    """The least time of each way, in turns."""
    found = [float("inf")] * len(ways)
    for _ in range(runs):
        for k, way in enumerate(ways):
            start = time.perf_counter()
            way()
            found[k] = min(found[k], time.perf_counter() - start)
    return found


def report(what: str, ratio: float, goal: str) -> None:
    print(f"{what:78} {ratio:8.2f}   goal {goal}", flush=True)


def agree(one: Any, other: Any) -> None:
    np.testing.assert_allclose(np.asarray(one), np.asarray(other), rtol=1e-3, atol=1e-5)


# ---------------------------------------------------------------------------------------------------------------------
# Networks


class Transformer(torch.nn.Module):
    """Two layers over positions of 16 numbers."""

    def __init__(self) -> None:
        super().__init__()
        layer = torch.nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
        self.encoder = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = torch.nn.Linear(16, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.head(self.encoder(x).mean(dim=1))[:, 0]
        return out


def mlp() -> torch.nn.Module:
    sizes = [torch.nn.Linear(32, 128), torch.nn.Linear(128, 128), torch.nn.Linear(128, 1)]
    return torch.nn.Sequential(sizes[0], torch.nn.ReLU(), sizes[1], torch.nn.ReLU(), sizes[2], torch.nn.Flatten(0))


def cnn() -> torch.nn.Module:
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, 16, 3, padding=1),
        torch.nn.ReLU(),
        torch.nn.Conv2d(16, 16, 3, stride=2),
        torch.nn.ReLU(),
        torch.nn.Flatten(),
        torch.nn.Linear(16 * 49, 1),
        torch.nn.Flatten(0),
    )


def networks(n: int) -> dict[str, tuple[torch.nn.Module, torch.Tensor, Any, torch.Tensor]]:
    """A network, rows, its features as ours, and as captum's mask."""
    torch.manual_seed(SEED)
    patches = np.kron(np.arange(16).reshape(4, 4), np.ones((4, 4), dtype=int))[None].repeat(3, axis=0)
    positions = np.arange(12)[:, None].repeat(16, axis=1)
    return {
        "CNN, 16 patches of 3x16x16": (cnn(), torch.randn(n, 3, 16, 16), patches, torch.tensor(patches)[None]),
        "MLP 32-128-128-1, 32 columns": (mlp(), torch.randn(n, 32), None, torch.arange(32)[None]),
        "transformer, 12 positions": (Transformer(), torch.randn(n, 12, 16), positions, torch.tensor(positions)[None]),
    }


# ---------------------------------------------------------------------------------------------------------------------
# Parts


def captum(quick: bool) -> None:
    """K permutations of every feature, as changes of the mean squared error."""
    n, draws = (40, 2) if quick else (200, 16)
    for name, network in networks(n).items():
        _against_captum(name, *network, draws, quick)


def _against_captum(
    name: str, net: torch.nn.Module, X: torch.Tensor, features: Any, mask: torch.Tensor, draws: int, quick: bool
) -> None:
    from captum.attr import FeatureAblation

    net.eval()
    n = len(X)
    y, ablation = torch.randn(n), FeatureAblation(net)
    donors = rl.plans.Shifts(n, draws, 0).donors(range(n), range(draws))
    groups = mask.reshape(-1)
    entries = [int(np.argmax(groups == g)) for g in range(int(groups.max()) + 1)]  # one of each feature

    def theirs(per_eval: int) -> Any:
        found = []
        with torch.no_grad():
            base = net(X)
            for k in range(draws):
                changed = ablation.attribute(
                    X, baselines=X[donors[:, k]], feature_mask=mask, perturbations_per_eval=per_eval
                )
                moved = changed.reshape(n, -1)[:, entries].T  # by how much the predictions fell
                found.append(((base - moved - y) ** 2).mean(dim=1) - ((base - y) ** 2).mean())
        return torch.stack(found).mean(dim=0)

    def ours() -> Any:
        design = rl.Draws(draws, design="shifts")
        return rl.permutation_importance(net, X, y, features=features, draws=design, rng=0, loss="squared_error")

    agree(ours().values, theirs(1))
    for threads in (1, 2):
        torch.set_num_threads(threads)
        own, *others = best(ours, *(partial(theirs, k) for k in (1, 4, 16)), runs=1 if quick else PEER_RUNS)
        report(f"captum at its best over ours, {name}, threads: {threads}", min(others) / own, ">= 1.5")
    torch.set_num_threads(1)


def inputs(quick: bool) -> None:
    """A dict of tensors against the same columns as one tensor."""
    n, pieces = (40, 4) if quick else (1000, 64)
    torch.manual_seed(SEED)
    X, y, weight = torch.randn(n, pieces), torch.randn(n), torch.randn(pieces, 64)
    parts = {"a": X[:, : pieces // 2], "b": X[:, pieces // 2 :]}
    columns = {f"a{k}": ("a", np.s_[k : k + 1]) for k in range(pieces // 2)}
    columns |= {f"b{k}": ("b", np.s_[k : k + 1]) for k in range(pieces - pieces // 2)}
    options: dict[str, Any] = {"draws": rl.Draws(4, design="shifts"), "rng": 0, "loss": "squared_error"}

    def one() -> Any:
        return rl.permutation_importance(lambda Z: torch.tanh(Z @ weight).sum(dim=1), X, y, **options)

    def several() -> Any:
        return rl.permutation_importance(
            lambda a, b: torch.tanh(torch.cat([a, b], dim=1) @ weight).sum(dim=1), parts, y, features=columns, **options
        )

    agree(one().values, several().values)
    plain, split = best(one, several, runs=1 if quick else RUNS)
    report(f"dict input over array input, {pieces} pieces", split / plain, "<= 1.15")


def layers(quick: bool) -> None:
    """A hidden layer against running the whole network again with the activations written into it."""
    n, draws = (40, 2) if quick else (500, 8)
    torch.manual_seed(SEED)
    X, y = torch.randn(n, 3, 16, 16), torch.randn(n)
    net = cnn().eval()
    model = rl.models.torch(net, layer=net[3])
    channels = np.arange(16)[:, None, None].repeat(7, axis=1).repeat(7, axis=2)
    donors = rl.plans.Shifts(n, draws, 0).donors(range(n), range(draws))

    def ours() -> Any:
        design = rl.Draws(draws, design="shifts")
        return rl.permutation_importance(
            model, X, y, features=channels, draws=design, rng=0, loss="squared_error"
        ).values

    def whole() -> Any:
        with torch.no_grad():
            hidden, base = net[:4](X), ((net(X) - y) ** 2).mean()
            values = []
            for channel in range(16):
                changes = []
                for k in range(draws):

                    def write(module: Any, given: Any, out: Any, channel: int = channel, k: int = k) -> Any:
                        out = out.clone()
                        out[:, channel] = hidden[donors[:, k], channel]
                        return out

                    handle = net[3].register_forward_hook(write)
                    changes.append(((net(X) - y) ** 2).mean() - base)
                    handle.remove()
                values.append(float(torch.stack(changes).mean()))
        return values

    agree(ours(), whole())
    own, other = best(ours, whole, runs=1 if quick else RUNS)
    report("re-running the whole network over a layer, 16 channels", other / own, "> 1")


def checkpoints(quick: bool) -> None:
    """Parameters as an operand, against a function of its own for each checkpoint."""
    import jax
    import jax.numpy as jnp

    n, count = (40, 2) if quick else (200, 5)
    rng = np.random.default_rng(SEED)
    X, y = jnp.asarray(rng.normal(size=(n, 8))), jnp.asarray(rng.normal(size=n))
    trained = [
        {"w": jnp.asarray(rng.normal(size=(8, 32))), "v": jnp.asarray(rng.normal(size=32))} for _ in range(count)
    ]

    def apply(params: Any, x: Any) -> Any:
        return jnp.tanh(x @ params["w"]) @ params["v"]

    def shared() -> Any:
        return [rl.permutation_importance(rl.models.jax(apply, one), X, y, rng=0).values for one in trained]

    def each() -> Any:
        found = []
        for one in trained:
            jax.clear_caches()  # programs are found by what they do: without this, functions share one as well
            found.append(rl.permutation_importance(lambda x, one=one: apply(one, x), X, y, rng=0).values)
        return found

    agree(shared(), each())
    own, other = best(shared, each, runs=1 if quick else 2)
    report(f"one compilation a checkpoint over a shared one, {count} checkpoints", other / own, "> 1")


def functional(quick: bool) -> None:
    """One draw of one column, with its gradient and without, against the same by hand."""
    n, calls = (40, 2) if quick else (256, 100)
    torch.manual_seed(SEED)
    X, y, net = torch.randn(n, 32), torch.randn(n), mlp()
    donors = torch.randperm(n)[:, None]

    def ours() -> torch.Tensor:
        return rl.functional.lent_risk(net, X, y, 3, donors)

    def by_hand() -> torch.Tensor:
        rows = X.clone()
        rows[:, 3] = X[donors[:, 0], 3]
        return ((net(rows) - y) ** 2).mean()

    def forward(risk: Callable[[], torch.Tensor]) -> None:
        for _ in range(calls):
            risk()

    def trained(risk: Callable[[], torch.Tensor]) -> None:
        for _ in range(calls):
            net.zero_grad()
            risk().backward()

    agree(ours().detach(), by_hand().detach())
    for words, way in (("", forward), (", with gradients", trained)):
        own, other = best(partial(way, ours), partial(way, by_hand), runs=1 if quick else RUNS)
        report(f"functional.lent_risk over by hand, K = 1{words}", own / other, "<= 1.2")


PARTS = {"captum": captum, "inputs": inputs, "layers": layers, "checkpoints": checkpoints, "functional": functional}


def main() -> None:
    parser = argparse.ArgumentParser(description="Ratios of times, of networks.")
    parser.add_argument("parts", nargs="*", help=f"some of {', '.join(PARTS)}")
    parser.add_argument("--quick", action="store_true", help="sizes that only show that it runs")
    options = parser.parse_args()
    unknown = [name for name in options.parts if name not in PARTS]
    if unknown:
        parser.error(f"unknown part {unknown[0]!r}: use {', '.join(PARTS)}")
    torch.set_num_threads(1)
    for name in options.parts or PARTS:
        PARTS[name](options.quick)


if __name__ == "__main__":
    main()
