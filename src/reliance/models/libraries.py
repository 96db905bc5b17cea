"""What is read of the models of other libraries, as types: nothing here runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NotRequired, Protocol, TypedDict, overload

import numpy as np
from numpy.typing import NDArray

from reliance._core.kinds import Array, HostArray, TorchArray

# ---------------------------------------------------------------------------------------------------------------------
# torch and Flax


class TorchHook(Protocol):
    """What is registered with a module of torch, and can be taken away."""

    def remove(self) -> None: ...


class TorchModule(Protocol):
    """A module of torch."""

    training: bool
    _forward_hooks: Mapping[int, object]
    _forward_pre_hooks: Mapping[int, object]

    def __call__(self, *inputs: Array, **named: Array) -> TorchArray: ...
    @property
    def forward(self) -> Callable[..., object]: ...
    def register_forward_hook(self, hook: Callable[..., None], /) -> TorchHook: ...
    def eval(self) -> object: ...
    def modules(self) -> Iterator[TorchModule]: ...
    def parameters(self) -> Iterator[TorchArray]: ...
    def buffers(self) -> Iterator[TorchArray]: ...
    def named_parameters(self) -> Iterator[tuple[str, TorchArray]]: ...
    def named_modules(self, *, remove_duplicate: bool = True) -> Iterator[tuple[str, TorchModule]]: ...
    def named_buffers(self) -> Iterator[tuple[str, TorchArray]]: ...


class TorchLayer(TorchModule, Protocol):
    """An affine layer of torch."""

    weight: TorchArray
    bias: TorchArray | None


class TorchSequence(TorchModule, Protocol):
    """Layers of torch one after the other; which of them are affine is looked at."""

    def __len__(self) -> int: ...
    @overload
    def __getitem__(self, place: int, /) -> TorchLayer: ...
    @overload
    def __getitem__(self, places: slice, /) -> TorchSequence: ...


class NnxModule(Protocol):
    """A module of Flax's nnx."""

    def __call__(self, *inputs: Array, **named: Array) -> Array: ...


class NnxVariable(Protocol):
    """A value inside of such a module; before Flax 0.11 without the two methods."""

    value: Array

    def get_value(self) -> Array: ...
    def set_value(self, value: Array, /) -> None: ...


class KerasModel(Protocol):
    """A model of Keras."""

    def __call__(self, inputs: object, /, *, training: bool) -> Array: ...


# ---------------------------------------------------------------------------------------------------------------------
# Trees


class SklearnTree(Protocol):
    """The arrays of a tree of scikit-learn."""

    node_count: int
    children_left: NDArray[np.int64]
    children_right: NDArray[np.int64]
    feature: NDArray[np.int64]
    threshold: NDArray[np.float64]
    missing_go_to_left: NDArray[np.uint8]
    n_node_samples: NDArray[np.int64]
    weighted_n_node_samples: NDArray[np.float64]
    value: NDArray[np.float64]

    def apply(self, X: NDArray[np.float32], /) -> NDArray[np.int64]: ...


class TreeEstimator(Protocol):
    """A fitted decision tree of scikit-learn; what has classes in its name, of classifiers alone."""

    tree_: SklearnTree
    criterion: str
    n_outputs_: int
    n_classes_: int
    classes_: HostArray
    class_weight: object


class Forest(Protocol):
    """A fitted decision tree or forest of scikit-learn; ``n_classes_`` and ``classes_`` of classifiers alone."""

    n_features_in_: int
    n_outputs_: int
    n_classes_: int
    classes_: HostArray


class _Linked(Protocol):
    link: object


class Boosting(Protocol):
    """Fitted gradient boosting of scikit-learn; ``classes_`` of classifiers alone."""

    n_features_in_: int
    classes_: HostArray
    _loss: _Linked


class GradientBoosting(Boosting, Protocol):
    """With trees of estimators, ``(stages, columns)``."""

    init_: object
    learning_rate: float
    estimators_: HostArray

    def _raw_predict_init(self, X: NDArray[np.float32], /) -> NDArray[np.float64]: ...


class _Encoder(Protocol):
    categories_: Sequence[HostArray]


class _Preprocessor(Protocol):
    named_transformers_: Mapping[str, _Encoder]


class _Predictor(Protocol):
    nodes: HostArray
    raw_left_cat_bitsets: NDArray[np.uint32]


class HistogramBoosting(Boosting, Protocol):
    """With trees of histograms."""

    n_trees_per_iteration_: int
    is_categorical_: NDArray[np.bool_] | None
    _preprocessor: _Preprocessor | None
    _predictors: Sequence[Sequence[_Predictor]]
    _baseline_prediction: NDArray[np.float64]


class IsolationForest(Protocol):
    """A fitted isolation forest of scikit-learn; for each tree the columns that it sees, and lengths by node."""

    n_features_in_: int
    estimators_: Sequence[TreeEstimator]
    estimators_features_: Sequence[NDArray[np.int64]]
    offset_: float
    _decision_path_lengths: Sequence[NDArray[np.float64]]
    _average_path_length_per_tree: Sequence[NDArray[np.float64]]
    _max_samples: int


class Bagging(Protocol):
    """Fitted bagging of scikit-learn; ``classes_`` of classifiers alone."""

    n_features_in_: int
    classes_: HostArray
    estimators_: Sequence[Boosting]
    estimators_features_: Sequence[NDArray[np.int64]]


class AdaBoost(Protocol):
    """Fitted AdaBoost of scikit-learn; ``classes_`` of classifiers alone."""

    n_features_in_: int
    classes_: HostArray
    estimators_: Sequence[Boosting]
    estimator_weights_: NDArray[np.float64]


class Voting(Protocol):
    """A fitted vote of regressors of scikit-learn."""

    estimators_: Sequence[object]
    _weights_not_none: Sequence[float] | None


class Several(Protocol):
    """Fitted models of scikit-learn, one for each output."""

    estimators_: Sequence[object]


class LightgbmBooster(Protocol):
    """A booster of LightGBM."""

    pandas_categorical: list[list[object]] | None

    def model_to_string(self) -> str: ...


class LightgbmEstimator(Protocol):
    """A fitted estimator of LightGBM; ``classes_`` of classifiers alone."""

    booster_: LightgbmBooster
    objective_: str | Callable[..., object]
    classes_: HostArray

    def get_params(self) -> Mapping[str, object]: ...


class XgboostBooster(Protocol):
    """A booster of XGBoost."""

    def save_raw(self, form: str, /) -> bytearray: ...
    def attr(self, name: str, /) -> str | None: ...
    def inplace_predict(self, X: Array, /) -> Array: ...


class XgboostCategories(TypedDict):
    """The levels of one column: numbers, or the bytes of texts and where each begins."""

    values: list[int]
    offsets: NotRequired[list[int]]


class _TreeParam(TypedDict):
    size_leaf_vector: str


class XgboostTree(TypedDict):
    """One tree in the text of a booster."""

    left_children: list[int]
    right_children: list[int]
    split_conditions: list[float]
    split_indices: list[int]
    split_type: list[int]
    default_left: list[int]
    categories: list[int]
    categories_nodes: list[int]
    categories_segments: list[int]
    categories_sizes: list[int]
    tree_param: _TreeParam
    leaf_weights: NotRequired[list[float]]


class XgboostEstimator(Protocol):
    """A fitted estimator of XGBoost; ``classes_`` of classifiers alone."""

    missing: float
    classes_: HostArray

    def get_booster(self) -> XgboostBooster: ...


class CatboostSplit(TypedDict):
    """A question of a tree; those about categories have other fields."""

    split_type: str
    float_feature_index: int
    border: float


class CatboostNode(TypedDict, total=False):
    """A node with those below it: a leaf has a value, any other node a split."""

    split: CatboostSplit
    left: CatboostNode
    right: CatboostNode
    value: float | list[float]


class _CatboostTree(TypedDict):
    splits: list[CatboostSplit]
    leaf_values: list[float]


class CatboostFloat(TypedDict):
    """A feature of numbers: its place among them, and among all columns."""

    feature_index: int
    flat_feature_index: int
    nan_value_treatment: str


class _CatboostFeatures(TypedDict):
    float_features: list[CatboostFloat]


class CatboostText(TypedDict):
    """A model as CatBoost writes it down, with one of the two lists of trees."""

    features_info: _CatboostFeatures
    scale_and_bias: tuple[float, list[float]]
    oblivious_trees: NotRequired[list[_CatboostTree]]
    trees: NotRequired[list[CatboostNode]]


class _Metadata(Protocol):
    def keys(self) -> Sequence[str]: ...


class CatboostModel(Protocol):
    """A fitted model of CatBoost; ``classes_`` are of classifiers alone."""

    feature_names_: list[str]
    classes_: HostArray

    def save_model(self, path: str, /, *, format: str) -> None: ...
    def get_all_params(self) -> Mapping[str, object]: ...
    def get_metadata(self) -> _Metadata: ...


# ---------------------------------------------------------------------------------------------------------------------
# Kernel machines


class SupportVectors(Protocol):
    """A fitted machine of support vectors of scikit-learn."""

    kernel: object
    coef0: float
    degree: float
    support_vectors_: NDArray[np.float64]
    dual_coef_: NDArray[np.float64]
    intercept_: NDArray[np.float64]
    _gamma: float
    _sparse: bool


class KernelRidge(Protocol):
    """A fitted kernel ridge regression of scikit-learn."""

    kernel: object
    gamma: float | None
    coef0: float
    degree: float
    X_fit_: NDArray[np.float64]
    dual_coef_: NDArray[np.float64]


class GaussianProcessKernel(Protocol):
    """A kernel of a Gaussian process; which of the fields it has depends on its class."""

    constant_value: float
    length_scale: float | NDArray[np.float64]
    sigma_0: float
    exponent: float

    @property
    def k1(self) -> GaussianProcessKernel: ...
    @property
    def k2(self) -> GaussianProcessKernel: ...
    @property
    def kernel(self) -> GaussianProcessKernel: ...


class GaussianProcess(Protocol):
    """A fitted regression by a Gaussian process of scikit-learn."""

    kernel_: GaussianProcessKernel
    X_train_: NDArray[np.float64]
    alpha_: NDArray[np.float64]
    _y_train_mean: NDArray[np.float64]
    _y_train_std: NDArray[np.float64]
