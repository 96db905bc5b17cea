"""What users pass, as types: the words of public signatures. What does not fit is refused at run time, with advice."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from reliance._core.kinds import Array, Operand
from reliance.losses.functions import LossLike as LossLike


class Predicts(Protocol):
    """A fitted estimator, as scikit-learn has them."""

    def predict(self, X: Operand, /) -> Operand: ...


class TableLike(Protocol):
    """A table of pandas, polars or pyarrow, which narwhals reads."""

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def columns(self) -> object: ...


# A function batch -> predictions, a module of torch, Flax or Keras, or an estimator.
ModelLike: TypeAlias = Callable[..., Operand] | Predicts

# Rows: an array or a table.
RowsLike: TypeAlias = Array | TableLike

# A column by its name or index; several of them are one feature. In words: each of a list, or of a mapping from names
# of groups to their columns; or a mask of integers of the shape of a row.
ColumnLike: TypeAlias = str | int | np.integer
GroupLike: TypeAlias = ColumnLike | Sequence[ColumnLike] | Array
FeaturesLike: TypeAlias = Sequence[GroupLike] | Mapping[str, GroupLike] | NDArray[np.integer] | Array | None
