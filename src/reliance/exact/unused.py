"""Features that a model is known not to use: nothing changes, whoever lends."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from reliance._core.streams import Indices
from reliance.data.features import Feature
from reliance.engine.evaluation import Evaluation
from reliance.engine.problems import Problem
from reliance.engine.reductions import Moments
from reliance.exact.protocol import Summarizer
from reliance.inference import Floats, Summary


@dataclass(frozen=True, eq=False)
class Unused:
    """A job that is its own answer."""

    problem: Problem
    features: tuple[Feature, ...]
    route: str = "unused"
    block: tuple[int, int] = (0, 0)

    def evaluations(self, feature: Feature) -> int:
        return 0

    def run(self, evaluation: Evaluation) -> Unused:
        return self

    def moments(self, feature: Feature) -> tuple[Moments, ...]:
        nothing = np.zeros(self.problem.n)
        return tuple(Moments(nothing, nothing, nothing, None) for _ in self.problem.losses)

    def summaries(self, summarizer: Summarizer) -> dict[str, Summary]:
        """All have the same."""
        first = self.features[0]
        same = summarizer(first, self.moments(first)[summarizer.index])
        return dict.fromkeys((feature.name for feature in self.features), same)

    def curve(self, feature: Feature, index: int, speakers: Indices, whole: bool) -> tuple[Floats, Floats | None]:
        return np.zeros(len(speakers)), np.zeros((self.problem.n, len(speakers))) if whole else None
