"""Models that say more about themselves than a function does, and models of other libraries."""

from reliance.models.adapters import onnx
from reliance.models.adapting import ADAPTERS
from reliance.models.calling import FirstLayer, Linear, Model

__all__ = ["ADAPTERS", "FirstLayer", "Linear", "Model", "onnx"]
