"""Models that say more about themselves than a function does, and models of other libraries."""

from reliance.models.adapters import onnx
from reliance.models.adapting import ADAPTERS
from reliance.models.additive import Additive
from reliance.models.calling import FirstLayer, Linear, Model
from reliance.models.networks import flax, jax, keras, split, torch

__all__ = ["ADAPTERS", "Additive", "FirstLayer", "Linear", "Model", "flax", "jax", "keras", "onnx", "split", "torch"]
