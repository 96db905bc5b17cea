"""Every pair by the model itself."""

from __future__ import annotations

from dataclasses import dataclass

from reliance.data.features import Feature
from reliance.exact.called import Called, called
from reliance.exact.held import HeldAt, HeldByModel, Impacts
from reliance.exact.protocol import ChosenRows, Exchange, Measured, Offer, Opening, Route


@dataclass(frozen=True, eq=False)
class _EveryPair:
    question: Exchange

    def cost(self, feature: Feature) -> float | str:
        return self.question.problem.n * self.question.plan.columns

    def jobs(self, features: tuple[Feature, ...]) -> list[Called]:
        # Together: they share filled blocks. But of tables few are held at a time.
        together = [features] if self.question.tables is None else [(feature,) for feature in features]
        return [called(self.question, "plain", self.question.plan, some) for some in together]


class Plain(Route):
    """Every pair by the model: applies always."""

    name, calls, tables, draws = "plain", True, True, True

    def pairs(self, question: Exchange) -> Opening[Measured]:
        def opened() -> Offer[Measured]:
            return _EveryPair(question)

        return opened

    def held(self, question: HeldAt) -> Opening[Impacts]:
        def opened() -> Offer[Impacts]:
            return HeldByModel(question)

        return opened

    def chosen(self, question: ChosenRows) -> Opening[Measured]:
        return self.pairs(question)
