"""Models of other libraries as functions of arrays: Keras, and files of ONNX."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias, TypeGuard

import numpy as np

from reliance._core.arrays import describe, is_array
from reliance._core.kinds import Array, HostArray
from reliance._core.words import listed, shown
from reliance.models.libraries import KerasModel

# Names of what onnxruntime runs on, in order of preference, each perhaps with options.
Providers: TypeAlias = str | Sequence[str | tuple[str, Mapping[str, object]]]

# The types of ONNX that arrays can have, and NumPy's names for them.
_TYPES = {
    "tensor(float)": np.float32,
    "tensor(double)": np.float64,
    "tensor(float16)": np.float16,
    "tensor(int64)": np.int64,
    "tensor(int32)": np.int32,
    "tensor(bool)": np.bool_,
}


def is_keras(model: object) -> TypeGuard[KerasModel]:
    """Without importing Keras: whoever has a model of it has imported it."""
    keras = sys.modules.get("keras")
    return keras is not None and hasattr(keras, "Model") and isinstance(model, keras.Model)


def keras_predict(model: KerasModel, chosen: Callable[[object], Array]) -> Callable[..., Array]:
    """A Keras model in inference mode: NumPy gives NumPy, arrays of its backend stay where they are.

    ``chosen`` takes the predictions out of what it answers.
    """
    import keras

    def predict(*inputs: Array, **named: Array) -> Array:
        given: object = named or (inputs[0] if len(inputs) == 1 else list(inputs))
        answer = chosen(model(given, training=False))
        first = next(iter(named.values())) if named else inputs[0]
        if not isinstance(first, np.ndarray):
            return answer
        host: HostArray = keras.ops.convert_to_numpy(answer)
        return host

    return predict


class OnnxModel:
    """A model in a file of ONNX, run by onnxruntime: see `reliance.models.onnx`."""

    def __init__(self, path: str | os.PathLike[str], output: str | int, providers: Providers) -> None:
        try:
            import onnxruntime
        except ImportError as error:
            raise ImportError(
                f"path={shown(str(path))}: onnxruntime runs such files; install reliance[onnx]"
            ) from error
        if not os.path.isfile(path):
            raise FileNotFoundError(f"path={str(path)[-120:]!r} is not a file: pass a model in a file of ONNX")
        chosen = [providers] if isinstance(providers, str) else list(providers)
        known = onnxruntime.get_available_providers()
        for one in chosen:  # a name, or a name with options; onnxruntime would take another one and only warn
            provider = one[0] if isinstance(one, tuple) and one else one
            if provider not in known:
                raise ValueError(
                    f"providers: {str(provider)[:60]!r} is not known to this onnxruntime, which has "
                    f"{', '.join(known)[:120]}"
                )
        self.session = onnxruntime.InferenceSession(os.fspath(path), providers=chosen)
        self.inputs = {one.name: one for one in self.session.get_inputs()}
        outputs = [one.name for one in self.session.get_outputs()]
        if isinstance(output, int) and 0 <= output < len(outputs):
            output = outputs[output]
        if output not in outputs:
            raise ValueError(
                f"output={shown(output)} is not an output of {shown(os.path.basename(path))}: it has {outputs}"
            )
        self.output = output
        self.__qualname__ = os.path.basename(os.fspath(path))
        for one in self.inputs.values():
            if one.type not in _TYPES:
                raise TypeError(
                    f"{self.__qualname__}: input {shown(one.name)} is a {one.type}: only arrays of numbers are taken"
                )
            if one.shape and isinstance(one.shape[0], int):
                raise ValueError(
                    f"{self.__qualname__}: input {shown(one.name)} takes exactly {one.shape[0]} rows at a time: export "
                    "the model with a dynamic first axis"
                )

    def __call__(self, *arrays: HostArray, **named: HostArray) -> HostArray:
        given = named or dict(zip(self.inputs, arrays, strict=False))
        if set(given) != set(self.inputs) or len(arrays) > len(self.inputs):
            raise TypeError(f"{self.__qualname__} has the inputs {listed(self.inputs)}: pass X as one array for each")
        feeds = {name: self._cast(name, array) for name, array in given.items()}
        (answer,) = self.session.run([self.output], feeds)
        if not isinstance(answer, np.ndarray):
            raise TypeError(
                f"{self.__qualname__}: output {shown(self.output)} is a {type(answer).__name__}, not an array: choose "
                "another with output=, or export the model without a map from labels to probabilities (zipmap)"
            )
        return answer

    def _cast(self, name: str, array: HostArray) -> HostArray:
        wanted = np.dtype(_TYPES[self.inputs[name].type])
        if not isinstance(array, np.ndarray):
            given = describe(array) if is_array(array) else type(array).__name__
            raise TypeError(f"{self.__qualname__} takes NumPy arrays, not a {given}: pass X as NumPy")
        if wanted.kind != array.dtype.kind:
            raise TypeError(f"{self.__qualname__}: input {shown(name)} is {wanted} but X is {array.dtype}: convert X")
        return np.ascontiguousarray(array, dtype=wanted)


def onnx(
    path: str | os.PathLike[str], *, output: str | int = 0, providers: Providers = "CPUExecutionProvider"
) -> OnnxModel:
    """A model from a file of ONNX, called on NumPy arrays (``onnxruntime``).

    Parameters
    ----------
    path : str or path
        The file. Its inputs must have a dynamic first axis, the rows.
    output : str or int
        Which of its outputs are the predictions.
    providers : sequence of str, or one
        Where onnxruntime runs it, in order of preference; one that it does not have is an error.

    Returns
    -------
    callable
        ``(m, ...) -> (m, ...)``; of several inputs in their order, or by name. Floating rows are cast to the floating
        type of the input, usually float32; anything else that does not fit is an error.

    Examples
    --------
    >>> model = rl.models.onnx("model.onnx")  # doctest: +SKIP
    >>> rl.permutation_importance(model, X, y)  # doctest: +SKIP
    """
    return OnnxModel(path, output, providers)
