"""What users pass, as types: the words of public signatures. What does not fit is refused at run time, with advice."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set, Sized
from types import EllipsisType
from typing import Protocol, TypeAlias

import numpy as np

from reliance._core.kinds import Array, Operand
from reliance.losses.functions import LossesLike as LossesLike
from reliance.losses.functions import LossLike as LossLike


class Predicts(Protocol):
    """A fitted estimator, as scikit-learn has them."""

    def predict(self, X: Operand, /) -> Operand: ...


class Fits(Protocol):
    """An estimator that can be fitted, as scikit-learn has them."""

    def fit(self, X: Operand, y: Operand, /) -> Operand: ...


class Shaped(Protocol):
    """An array of any library, also of one whose arrays are not written in place."""

    @property
    def shape(self) -> tuple[int, ...]: ...


class TableLike(Protocol):
    """A table of pandas, polars or pyarrow, which narwhals reads."""

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def columns(self) -> object: ...
    def __len__(self) -> int: ...


# A function batch -> predictions, a module of torch, Flax or Keras, or an estimator.
ModelLike: TypeAlias = Callable[..., Operand] | Predicts

# A function (X, y) -> model, or an estimator.
FitLike: TypeAlias = Callable[[Operand, Operand], Operand] | Fits

# What X, y and weights may be: an array, a table, a column, nested lists, a tuple or a mapping of several inputs. They
# have nothing in common but a length: arrays of JAX cannot be written to, and columns of pyarrow have no shape.
DataLike: TypeAlias = Sized

# Rows, once they were looked at: an array or a table.
RowsLike: TypeAlias = Array | TableLike

# A column by its name or index; several of them are one feature, as is a part of a row: what NumPy would index it with
# (np.s_[0, 2:5]) or a mask of booleans, of several inputs with the input before it. In words: each of a list, or of a
# mapping from names of groups to them; or a mask of integers of the shape of a row.
ColumnLike: TypeAlias = str | int | np.integer
PartLike: TypeAlias = slice | EllipsisType | tuple[object, ...] | Shaped
GroupLike: TypeAlias = ColumnLike | Sequence[ColumnLike] | Set[ColumnLike] | PartLike | Sequence[PartLike]
FeaturesLike: TypeAlias = Sequence[GroupLike] | Mapping[str, GroupLike] | Shaped | None
