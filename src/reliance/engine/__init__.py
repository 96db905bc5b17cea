"""The one loop: `prepare` checks what it is given, a `Store` makes its blocks, an `Evaluation` measures plans."""

from reliance.engine.evaluation import Evaluation, evaluating
from reliance.engine.problems import Problem, prepare
from reliance.engine.stores import ArrayStore, Store

__all__ = ["ArrayStore", "Evaluation", "Problem", "Store", "evaluating", "prepare"]
