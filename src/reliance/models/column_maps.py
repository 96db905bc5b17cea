"""Which column of the rows each transformed column comes from, as scikit-learn's transformers say themselves.

A transformer that treats columns apart makes every column of its output from one column of its input. What it says is
tried out on rows before anything rests on it (see `exact.trust`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, TypeAlias

import numpy as np

from reliance._core.words import short
from reliance.models.untouched import inherits

# Of each column the column of the rows that it comes from; None: from none.
Sources: TypeAlias = tuple[int | None, ...]
# Fitted transformers of scikit-learn, whose attributes differ from class to class.
Transformer: TypeAlias = Any


class MixesColumns(Exception):
    """Why a transformer's columns come from several columns of the rows, or are not known not to."""


def mapped(transformer: Transformer, sources: Sources) -> Sources:
    """The sources of a transformer's output, given those of its input; raises `MixesColumns`."""
    if transformer is None or transformer == "passthrough":
        return sources
    if transformer == "drop":
        return ()
    name = short(type(transformer).__name__, 60)
    if not inherits(transformer, ("transform",), "sklearn"):
        raise MixesColumns(f"the pipeline's {name} is not known to treat columns apart")
    for kinds, rule in _rules():
        if isinstance(transformer, kinds):
            return rule(transformer, sources)
    raise MixesColumns(f"the pipeline's {name} mixes columns")


def _same(transformer: Transformer, sources: Sources) -> Sources:
    return sources


def _widths(counts: Sequence[int], sources: Sources) -> Sources:
    """Each column becomes several, one column's after the other's."""
    return tuple(source for source, count in zip(sources, counts, strict=True) for _ in range(int(count)))


def _one_hot(encoder: Transformer, sources: Sources) -> Sources:
    return _widths(encoder._n_features_outs, sources)


def _target(encoder: Transformer, sources: Sources) -> Sources:
    several = encoder.target_type_ == "multiclass"
    return _widths([len(encoder.classes_) if several else 1] * len(sources), sources)


def _bins(binner: Transformer, sources: Sources) -> Sources:
    return sources if binner.encode == "ordinal" else _widths(binner.n_bins_, sources)


def _splines(transformer: Transformer, sources: Sources) -> Sources:
    return _widths([transformer.n_features_out_ // len(sources)] * len(sources), sources)


def _powers(transformer: Transformer, sources: Sources) -> Sources:
    if np.any(np.count_nonzero(transformer.powers_, axis=1) > 1):
        raise MixesColumns("the pipeline's PolynomialFeatures mixes columns: it multiplies them")
    return tuple(sources[int(np.argmax(row))] if np.any(row) else None for row in transformer.powers_)


def _imputed(imputer: Transformer, sources: Sources) -> Sources:
    """Columns without any value are left out; where values are missing may follow as columns of their own."""
    kept = sources
    if imputer.strategy != "constant" and not imputer.keep_empty_features:
        empty = [value is None or value != value for value in np.asarray(imputer.statistics_, dtype=object)]
        kept = tuple(source for source, gone in zip(sources, empty, strict=True) if not gone)
    return kept if imputer.indicator_ is None else kept + _indicated(imputer.indicator_, sources)


def _indicated(indicator: Transformer, sources: Sources) -> Sources:
    return tuple(sources[j] for j in indicator.features_)


def _chosen(selector: Transformer, sources: Sources) -> Sources:
    return tuple(sources[j] for j in selector.get_support(indices=True))


def _function(transformer: Transformer, sources: Sources) -> Sources:
    if transformer.feature_names_out != "one-to-one" and transformer.func is not None:
        raise MixesColumns(
            "the pipeline's FunctionTransformer may mix columns: pass it feature_names_out='one-to-one' if it does not"
        )
    return sources


def _each_after_the_other(pipeline: Transformer, sources: Sources) -> Sources:
    for _, step in pipeline.steps:
        sources = mapped(step, sources)
    return sources


def _side_by_side(union: Transformer, sources: Sources) -> Sources:
    return tuple(source for _, one in union.transformer_list for source in mapped(one, sources))


def _by_columns(transformer: Transformer, sources: Sources) -> Sources:
    places = {name: part for name, part in transformer.output_indices_.items() if part.stop > part.start}
    found: list[int | None] = [None] * max((part.stop for part in places.values()), default=0)
    for name, one, _ in transformer.transformers_:
        if name not in places:
            continue
        own = mapped(one, tuple(sources[j] for j in transformer._transformer_to_input_indices[name]))
        if len(own) != places[name].stop - places[name].start:
            raise MixesColumns(f"the pipeline's ColumnTransformer has another number of columns from {short(name, 60)}")
        found[places[name]] = own
    return tuple(found)


@cache
def _rules() -> tuple[tuple[tuple[type, ...], Callable[[Transformer, Sources], Sources]], ...]:
    """By the classes of scikit-learn, which is imported if there are transformers of it."""
    from sklearn import preprocessing as p
    from sklearn.compose import ColumnTransformer
    from sklearn.feature_selection import SelectorMixin
    from sklearn.impute import MissingIndicator, SimpleImputer
    from sklearn.pipeline import FeatureUnion, Pipeline

    scalers = (p.StandardScaler, p.MinMaxScaler, p.MaxAbsScaler, p.RobustScaler, p.Binarizer)
    return (
        ((*scalers, p.PowerTransformer, p.QuantileTransformer, p.OrdinalEncoder), _same),
        ((p.OneHotEncoder,), _one_hot),
        ((p.TargetEncoder,), _target),
        ((p.KBinsDiscretizer,), _bins),
        ((p.SplineTransformer,), _splines),
        ((p.PolynomialFeatures,), _powers),
        ((p.FunctionTransformer,), _function),
        ((SimpleImputer,), _imputed),
        ((MissingIndicator,), _indicated),
        ((SelectorMixin,), _chosen),
        ((Pipeline,), _each_after_the_other),
        ((FeatureUnion,), _side_by_side),
        ((ColumnTransformer,), _by_columns),
    )
