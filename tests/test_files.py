"""Results as records and in files: what nobody may write to, what JSON can hold, and what a file may not do."""

from __future__ import annotations

import copy
import dataclasses
import io
import json
import math
import os
import pickle
import stat
import tracemalloc
import warnings
import zipfile
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import reliance as rl
from reliance.rashomon.members import Members
from reliance.results import records
from reliance.results.algorithm import AlgorithmReliance
from reliance.results.base import Result
from reliance.results.comparisons import Delta, Influence, RelativeImportance
from reliance.results.curves import Curve
from reliance.results.mapping import Results
from reliance.results.null import NullImportance
from reliance.results.tested import TestResult
from test_results import make, same

NAN, INF = math.nan, math.inf
PAIR = ("a", "b")


def importance():
    found = make(values=(NAN, INF), names=list(PAIR), n=3, monte_carlo_share=NAN)
    curve = Curve(np.array([1.0, NAN]), np.array([[0.5], [INF]]), np.zeros((3, 2, 1)))
    return dataclasses.replace(found, curves=dict.fromkeys(PAIR, curve), tree_values=np.array([[NAN], [1.0]]))


def algorithm():
    two = np.array([NAN, -INF])
    return AlgorithmReliance(
        *(PAIR, two, "ratio", NAN, two, "algorithm", np.stack([two, two, two], 1), two, two, two),
        *(9, 8, 2, 6, "m", "l", "out"),
    )


def null():
    return NullImportance(PAIR, np.array([NAN, 1.0]), np.array([[NAN, 0.0], [2.0, 1.0]]), 5, 2**99, "impurity")


def impact():
    grid = np.array([[NAN, 1.0], [INF, 2.0], [0.0, -INF]])
    numbers = np.array([1, 2])
    return rl.Impact(
        PAIR, np.array([0.1, 0.5, 0.9]), grid, np.array([NAN, 1.0]), grid, False, 7, numbers, ("plain", "plain"), (3, 4)
    )


def local():
    m = np.array([[NAN, 1.0], [2.0, INF]])
    error = np.array([[NAN, 0.1], [0.0, NAN]])
    return rl.LocalImportance(PAIR, np.array([0, 4]), m, error, m[0], "squared_error", 9, 3, 2**100, np.array([6, 6]))


def ranges():
    two, grid = np.array([NAN, INF]), np.array([[NAN, 1.0], [0.0, INF]])
    members = Members(("m",), np.array([1.0]), np.array([True]), grid[:1])
    models = (np.sum, np.sum)
    return rl.ClassReliance(
        PAIR,
        two,
        two,
        two,
        two,
        models,
        models,
        two,
        two,
        NAN,
        INF,
        "ratio",
        "l",
        5,
        False,
        "c",
        grid,
        0.9,
        grid,
        members,
    )


def delta():
    return Delta(PAIR, np.array([NAN, 1.0]), np.array([NAN, 0.1]), np.array([9.0, 9.0]))


def ranks():
    return rl.Ranks(PAIR, np.array([NAN, 1.0]), np.array([1, 1]), np.array([2, 2]), np.zeros((2, 2), dtype=bool), 0.95)


def pooled():
    two = np.array([NAN, 1.0])
    return rl.Pooled(PAIR, two, "ratio", two, two, two, two, two, INF, 9, 5, "m", "l")


def relative():
    empty = Influence(np.zeros((2, 3)), None, None)
    return RelativeImportance({"": importance(), "z": importance()}, influences={"": empty, "z": empty})


def several():
    return Results({"one": importance(), "two": importance()})


def nested():
    return Results({"one": relative(), "two": relative()})


def comparison():
    two = np.array([NAN, 1.0])
    return rl.SplitComparison(importance(), importance(), PAIR, two, two, np.array([5.0, 5.0]))


def compared():
    errors = np.array([[[0.0, 0.0], [NAN, 0.5]], [[NAN, 0.5], [0.0, 0.0]]])
    return rl.ModelComparison(
        {"a": importance(), "b": importance()}, differences=errors, std_errors=errors, skewness=errors
    )


def judged():
    two = np.array([NAN, 0.5])
    return TestResult(PAIR, two, two, two, "t", "greater", "holm")


def linear():
    two = np.array([NAN, 0.5])
    fields = {f.name: two for f in dataclasses.fields(rl.LinearImportance)} | {"names": PAIR, "scale": "range", "n": 4}
    return rl.LinearImportance(**fields)


INTERACTION = ("values", "joint", "first", "second", "std_error", "skewness", "degrees_of_freedom")


def interactions():
    arrays = {name: np.array([NAN]) for name in INTERACTION}
    return rl.Interactions(
        pairs=(PAIR,), base_risk=INF, n=9, draws_per_row=np.int64(3), loss="l", evaluations=5, key=2**90, **arrays
    )


def extrapolation():
    two = np.array([NAN, INF])
    return rl.Extrapolation(PAIR, two, two, "neighbours", NAN, 9, 5, 3)


def monitored():
    two = np.array([[NAN, INF], [0.1, -0.0]])
    rows = np.array([3, 4], dtype=np.int64)
    return rl.Monitored(PAIR, two[1], two, two, two, two, rows, 0.95, "bounded", "zero_one", 2**70)


ALL = (
    importance, algorithm, null, impact, local, ranges, delta, ranks, pooled, relative, comparison, compared, judged,
    linear, interactions, monitored, extrapolation, several, nested,
)  # fmt: skip
every = pytest.mark.parametrize("example", ALL, ids=lambda f: f.__name__)


def arrays_of(result, path=""):
    """All arrays within a result, however deep."""
    if isinstance(result, np.ndarray):
        yield path, result
    elif isinstance(result, records.Record):
        for field in dataclasses.fields(result):
            yield from arrays_of(getattr(result, field.name), f"{path}.{field.name}")
    elif isinstance(result, dict):
        for name, item in result.items():
            yield from arrays_of(item, f"{path}[{name!r}]")


def test_every_result_is_here():
    def below(kind):
        return {kind}.union(*map(below, kind.__subclasses__()))

    shown = {type(example()) for example in ALL} | {records.Record, Result, Members, Curve, Influence}
    assert {kind for kind in below(records.Record) if kind.__module__.startswith("reliance")} == shown


@every
@pytest.mark.parametrize(
    "trip",
    [lambda r: r, copy.copy, copy.deepcopy, *(lambda r, k=k: pickle.loads(pickle.dumps(r, k)) for k in (0, 2, 5))],
    ids=["itself", "copy", "deepcopy", "pickle 0", "pickle 2", "pickle 5"],
)
def test_arrays_are_read_only_after_any_trip(example, trip):
    before, after = dict(arrays_of(example())), dict(arrays_of(trip(example())))
    assert before.keys() == after.keys()
    assert len(after) >= 1
    for name, array in after.items():
        assert not array.flags.writeable, name
        np.testing.assert_array_equal(array, before[name])
        with pytest.raises(ValueError, match="read-only"):
            array.flat[0] = 1
    assert trip(example()).to_dict() == example().to_dict()


def test_a_result_owns_its_arrays():
    base = np.zeros((2, 4))
    view = base[:, 1]
    view.flags.writeable = False
    found = Delta(PAIR, view, np.array([1.0, 1.0]), np.array([3.0, 3.0]))
    base[:] = 7
    assert found.values.tolist() == [0.0, 0.0]


@every
def test_dictionaries_are_strict_json(example):
    text = json.dumps(example().to_dict(), allow_nan=False)
    found = json.loads(text)
    assert set(found) <= {field.name for field in dataclasses.fields(example())} | {"gap"}
    assert "null" in text  # every example has an unknown number
    if "values" in found:
        expected = example().values
        assert np.asarray(found["values"], dtype=float).shape == expected.shape
        for told, value in zip(np.ravel(found["values"]), expected.flat, strict=True):
            assert (told is None) == (not math.isfinite(value))
            assert told is None or told == value


@pytest.mark.parametrize(
    "value, expected",
    [
        (np.float32(0.5), 0.5),
        (np.int64(3), 3),
        (np.bool_(True), True),
        (np.float64(NAN), None),
        (-INF, None),
        ((1, (2.0, INF)), [1, [2.0, None]]),
        ({1: NAN}, {"1": None}),
        (np.array([[1.0, NAN]], dtype=np.float32), [[1.0, None]]),
        (np.array(2.5), 2.5),
        (np.array(["a"]), ["a"]),
        (2**100, 2**100),
        (None, None),
    ],
)
def test_plain_values(value, expected):
    found = records.plain(value)
    assert found == expected
    assert type(found) is type(expected)


@every
def test_large_results_print_little_and_compare_by_identity(example):
    found = example()
    assert found == found
    assert found != example()
    assert len({found, found}) == 1
    assert len(repr(found)) < 6000
    frame = getattr(found, "to_frame", None)
    assert frame is None or len(frame()) >= 1


def test_tables_of_many_features_stay_small():
    p = 3000
    names = tuple(f"a very long name of a feature, number {j}, " * 20 for j in range(p))
    numbers = np.linspace(0, 1, p)
    for found in (
        TestResult(names, numbers, numbers, numbers, "t", "greater", "holm"),
        Delta(names, numbers, numbers, np.full(p, 9.0)),
    ):
        text = repr(found)
        assert len(text) < 3000
        assert f"20 largest of {p}" in text
    many = RelativeImportance({f"set {k}": make() for k in range(200)})
    assert len(repr(many)) < 6000
    assert "190 more" in repr(many)


def test_tables_from_many_threads_leave_the_filters_of_warnings_alone(monkeypatch):
    """A filter that is put back by one thread while another has its own stays changed for good."""
    found = [make(skewness=0.5), algorithm(), comparison()]
    monkeypatch.setattr(warnings, "catch_warnings", None)  # nobody may even try
    before = list(warnings.filters)
    with ThreadPoolExecutor(8) as pool:
        shown = list(pool.map(lambda k: (repr(found[k % 3]), len(found[k % 3].to_frame())), range(48)))
    assert len(set(shown)) == 3
    assert warnings.filters == before


# ---------------------------------------------------------------------------------------------------------------------
# A feature that is not identified


def with_unknown(**given):
    """Three features of which the second has no value, or no error."""
    whole, moved = make(values=(0.5, 0.0, 1.5), k=given.pop("k", 25)), {}
    for name in given.pop("unknown"):
        moved[name] = np.array(getattr(whole, name))
        moved[name][1] = NAN
    return dataclasses.replace(whole, **moved, **given)


ERRORS = ("std_error", "skewness", "monte_carlo_share", "fixed_data_error", "random_variable_error", "row_error")
UNKNOWN = [("values", "draws", "row_values", "replaced_risk", *ERRORS), ("std_error", "skewness")]


@pytest.mark.parametrize("unknown", UNKNOWN, ids=["value", "error"])
def test_tests_leave_out_what_is_not_known(unknown):
    found, others = with_unknown(unknown=unknown), make(values=(0.5, 0.0, 1.5), k=25)._taken(np.array([0, 2]))
    for method in ("t", "paired", "rank", "sign-flip"):
        for adjust in ("holm", "bh", "none"):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                one, other = found.test(method=method, adjust=adjust), others.test(method=method, adjust=adjust)
            for name in ("statistic", "p_value", "p_adjusted"):
                assert np.isnan(getattr(one, name)[1]), (method, name)
                np.testing.assert_array_equal(getattr(one, name)[[0, 2]], getattr(other, name))


@pytest.mark.parametrize("unknown", UNKNOWN, ids=["value", "error"])
@pytest.mark.parametrize("compare", ["difference", "ratio"])
def test_tables_and_figures_cope_with_what_is_not_known(unknown, compare):
    plt = pytest.importorskip("matplotlib.pyplot")
    plt.switch_backend("Agg")
    found = with_unknown(unknown=unknown, compare=compare)
    comparison = rl.SplitComparison(
        found, found, found.names, found.values - 1.0, found.std_error, np.array([5.0, 5.0, 5.0])
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for result in (found, comparison):
            line = repr(result).splitlines()[3].split()
            assert line[0] == "x1"
            assert line[-2:] == ["-", "-"]
            assert "-" not in repr(result).splitlines()[4].split()
            assert result.to_frame().isna().loc["x1"].any()
            assert not result.to_frame().isna().loc[["x0", "x2"]].any().any()
            result.plot("bar").figure.canvas.draw()
            result.plot("box").figure.canvas.draw()
            result.plot("violin").figure.canvas.draw()
            plt.close("all")
    assert found.ranked().names == ("x2", "x0", "x1")
    assert np.isnan(comparison.test().p_value).tolist() == [False, True, False]
    assert np.isnan(found.interval()).any(axis=1).tolist() == [False, True, False]


# ---------------------------------------------------------------------------------------------------------------------
# Files


def changed(path, out, change):
    """The same file with its header, and arrays, changed by hand."""
    if path.suffix == ".json":
        found = json.loads(path.read_text())
        change(found)
        out.write_text(json.dumps(found))
        return out
    with np.load(path) as file:
        arrays = {name: file[name] for name in file.files}
    header = json.loads(str(arrays.pop("header")))
    found = {**header, **arrays}
    change(found)
    is_array = {name for name, value in found.items() if isinstance(value, np.ndarray)}
    rest = json.dumps({name: value for name, value in found.items() if name not in is_array})
    np.savez(out, header=np.array(rest), **{name: found[name] for name in is_array})
    return out


@pytest.mark.parametrize("suffix", [".json", ".npz"])
@every
def test_what_was_saved_is_read_again(example, suffix, tmp_path):
    found = example()
    path = tmp_path / f"a{suffix}"
    found.save(path)
    again = rl.load(path)
    assert type(again) is type(found)
    assert again.to_dict() == found.to_dict()
    before, after = dict(arrays_of(found)), dict(arrays_of(again))
    assert before.keys() == after.keys()
    for name in before:
        assert before[name].tobytes() == after[name].tobytes(), name
        assert not after[name].flags.writeable


def setting(**fields):
    return lambda found: found.update(fields)


def dropping(name):
    return lambda found: found.pop(name)


BAD = [
    (importance, setting(names=["a"]), "shape"),
    (importance, setting(names=["a", "b", "c"]), "shape"),
    (importance, setting(names="ab"), "names"),
    (importance, setting(names=["a", 2]), "names"),
    (importance, setting(compare="quotient"), "compare.*'quotient'"),
    (importance, setting(n="nan"), "'n'"),
    (importance, setting(n=-3), "'n'"),
    (importance, setting(n=3.0), "'n'"),
    (importance, setting(n=True), "'n'"),
    (importance, setting(n=None), "'n'"),
    (importance, setting(n=2**70), "'n'"),
    (importance, setting(n=4), "row_values"),
    (importance, setting(draws_per_row=-1), "draws_per_row"),
    (importance, setting(key="12a"), "key"),
    (importance, setting(key="9" * 5000), "key"),
    (importance, setting(key=12), "key"),
    (importance, setting(base_risk="abc"), "base_risk"),
    (importance, setting(base_risk=None), "base_risk"),
    (importance, setting(routes=["plain"]), "routes"),
    (importance, setting(block=[-1, 3]), "block"),
    (importance, setting(block="64"), "block"),
    (importance, setting(method=3), "method"),
    (importance, setting(strange=1), "strange"),
    (importance, dropping("values"), "lacks 'values'"),
    (importance, dropping("curves.1.mean"), "curves.1.mean"),
    (importance, setting(curves=False), "curves"),
    (importance, setting(curves=["a"]), "curves"),
    (importance, setting(curves=["a", "a"]), "curves"),
    (importance, setting(**{"curves.0": "Importance"}), "curves.0"),
    (importance, setting(**{"curves.7.mean": 1}), "curves.7"),
    (importance, setting(**{"values.0": 1}), "values"),
    (importance, dropping("curves.1"), "curves.1"),
    (importance, setting(curves="yes"), "curves"),
    (importance, setting(version=2), "another version"),
    (importance, setting(format="reliance.Nothing"), "no saved"),
    (importance, setting(format=["reliance.Importance"]), "no saved"),
    (algorithm, setting(target="nothing"), "target"),
    (algorithm, setting(leave="sideways"), "leave"),
    (algorithm, setting(models_freedom=-1), "models_freedom"),
    (algorithm, setting(refits=1.5), "refits"),
    (null, setting(measure=None), "measure"),
    (null, setting(n=[]), "'n'"),
    (impact, setting(normalized=1), "normalized"),
    (impact, setting(block=None), "block"),
    (relative, setting(by="colour"), "by"),
    (relative, setting(**{"entries.1": "Delta"}), "entries.1"),
    (relative, setting(**{"entries.1": "Curve"}), "entries.1"),
    (relative, setting(**{"entries.0.names": ["a", "c"]}), "curves"),
    (relative, setting(influences=["", "y"]), "sets"),
    (several, setting(entries=["one"]), "entries.1"),
    (several, setting(**{"entries.0": "Curve"}), "entries.0"),
    (several, setting(**{"entries.0": "Nothing"}), "entries.0"),
    (several, setting(**{"entries.0.n": -1}), "entries.0.n"),
    (comparison, setting(on_test="Delta"), "on_test"),
    (comparison, setting(names=["a", "c"]), "different features"),
    (comparison, dropping("on_train.values"), "on_train.values"),
    (interactions, setting(pairs=[["a", "b", "c"]]), "pairs"),
    (interactions, setting(pairs=[["a", 1]]), "pairs"),
    (interactions, setting(pairs=[["a", "b"], ["a", "c"]]), "shape"),
    (ranges, setting(lower_models=[]), "lower_models"),
    (ranges, setting(members=None), "members"),
    (local, setting(quantity=1), "quantity"),
]
BAD_LISTS = [
    (importance, setting(values=[1.0, None]), "values"),
    (importance, setting(values=[[1.0], [2.0, 3.0]]), "values"),
    (importance, setting(values={"a": 1}), "values"),
    (importance, setting(values=["x", 1.0]), "values"),
    (importance, setting(evaluations=[-1, 2]), "evaluations"),
    (importance, setting(evaluations=[1.5, 2]), "evaluations"),
    (importance, setting(evaluations=[2**80, 2]), "evaluations"),
    (importance, setting(**{"curves.0.mean": [1.0]}), "curves"),
    (algorithm, setting(folds=[1.0, 2.0]), "folds"),
    (ranges, setting(**{"members.inside": [1]}), "members.inside"),
    (ranges, setting(outer=[[1.0, 2.0, 3.0], [1.0, 2.0, 3.0]]), "outer"),
]
BAD_ARRAYS = [
    (importance, setting(values=np.zeros((2, 1))), "values"),
    (importance, setting(values=np.zeros(2, dtype=np.float32)), "values"),
    (importance, setting(values=np.array(["a", "b"])), "values"),
    (importance, setting(evaluations=np.array([-1, 2])), "evaluations"),
    (importance, setting(names=np.array(["a", "b"])), "names"),
    (importance, setting(tree_values=np.zeros((3, 4))), "tree_values"),
    (importance, setting(**{"curves.0.ice": np.zeros((4, 2, 1))}), "curves"),
    (null, setting(null=np.zeros((3, 2))), "null"),
    (impact, setting(points=np.zeros((2, 2))), "points"),
]
CASES = [(*case, suffix) for case in BAD for suffix in (".json", ".npz")]
CASES += [(*case, ".json") for case in BAD_LISTS] + [(*case, ".npz") for case in BAD_ARRAYS]


@pytest.mark.parametrize("example, change, word, suffix", CASES)
def test_what_was_changed_by_hand_is_refused(example, change, word, suffix, tmp_path):
    path = tmp_path / f"good{suffix}"
    example().save(path)
    bad = changed(path, tmp_path / f"bad{suffix}", change)
    with pytest.raises(ValueError, match=word) as error:
        rl.load(bad)
    assert f"bad{suffix}" in str(error.value)
    assert len(str(error.value)) <= 300


@pytest.mark.parametrize("suffix", [".json", ".npz"])
def test_a_file_that_is_cut_or_altered_anywhere_gives_one_clear_error(suffix, tmp_path):
    path, broken = tmp_path / f"good{suffix}", tmp_path / f"broken{suffix}"
    null().save(path)
    whole = path.read_bytes()
    rng = np.random.default_rng(0)
    cuts = [whole[:k] for k in range(0, len(whole) - 1, max(1, len(whole) // 60))]
    places = rng.integers(len(whole), size=200)
    flips = [whole[:k] + bytes([whole[k] ^ (1 << int(rng.integers(8)))]) + whole[k + 1 :] for k in places]
    foreign = [
        b"",
        b"\xff\xfe\x00",
        b"PK\x03\x04",
        b"PK\x05\x06" + bytes(18),
        b"[" * 100_000,
        b"1" * 5000,
        b"null",
        b'"x"',
    ]
    for place, data in enumerate([*cuts, *flips, *foreign]):
        broken.write_bytes(data)
        error = error_of(broken)
        if error is None:  # a bit of a number, or of a name, may change
            assert len(cuts) <= place < len(cuts) + len(flips)
            continue
        assert type(error) is ValueError  # not one of its kinds with words of their own
        assert "broken" in str(error)
        assert len(str(error)) <= 300


def error_of(path):
    try:
        rl.load(path)
    except Exception as error:
        return error
    return None


def test_a_missing_file_is_the_systems_own_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        rl.load(tmp_path / "none.json")
    with pytest.raises(ValueError, match=r"must end in .json or .npz") as error:
        rl.load("x" * 5000)
    assert len(str(error.value)) < 300


def peak_of_refusing(path):
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=path.name):
            rl.load(path)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def npy(array):
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


@pytest.mark.parametrize("inflated", ["values", "row_values", "header", "strange"])
def test_an_archive_that_inflates_is_refused_before_it_does(inflated, tmp_path):
    good, bomb = tmp_path / "good.npz", tmp_path / "bomb.npz"
    importance().save(good)
    zeros = npy(np.full((), "0" * 10_000_000) if inflated == "header" else np.zeros(5_000_000))
    with zipfile.ZipFile(good) as source, zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as target:
        for name in source.namelist():
            if name != f"{inflated}.npy":
                target.writestr(name, source.read(name))
        target.writestr(f"{inflated}.npy", zeros)
    assert bomb.stat().st_size < 1_000_000
    assert peak_of_refusing(bomb) < 5_000_000


def test_an_array_that_claims_to_be_large_is_refused(tmp_path):
    good, bomb = tmp_path / "good.npz", tmp_path / "bomb.npz"
    importance().save(good)
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f8", "fortran_order": False, "shape": (400_000_000,)})
    with zipfile.ZipFile(good) as source, zipfile.ZipFile(bomb, "w") as target:
        for name in source.namelist():
            target.writestr(name, header.getvalue() if name == "values.npy" else source.read(name))
    assert peak_of_refusing(bomb) < 5_000_000


def test_members_that_share_their_bytes_are_refused(tmp_path):
    """Many entries of the directory may point at one member, which is then read again and again."""
    path = tmp_path / "overlap.npz"
    with zipfile.ZipFile(path, "w") as target:
        target.writestr("header.npy", npy(np.array("{}")))
        target.writestr("x.npy", npy(np.zeros(10_000)))
        one = target.infolist()[1]
        for k in range(500):
            twin = copy.copy(one)
            twin.filename = f"y{k}.npy"
            target.filelist.append(twin)
    with pytest.raises(ValueError, match="larger than the file"):
        rl.load(path)


def test_objects_are_never_unpickled(tmp_path):
    class Harm:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "harm"),)

    importance().save(tmp_path / "good.npz")
    for name in ("header", "values"):
        with np.load(tmp_path / "good.npz") as file:
            arrays = {key: file[key] for key in file.files}
        arrays[name] = np.array([Harm()], dtype=object)
        np.savez(tmp_path / "bad.npz", **arrays)
        with pytest.raises(ValueError, match="never unpickled"):
            rl.load(tmp_path / "bad.npz")
    assert not (tmp_path / "harm").exists()


# ---------------------------------------------------------------------------------------------------------------------
# Saving


@pytest.mark.parametrize("suffix", [".json", ".npz"])
@pytest.mark.parametrize("failing", ["os.fsync", "os.replace", "json.dumps", "numpy.savez"])
@pytest.mark.parametrize("error", [OSError("disk full"), KeyboardInterrupt()], ids=["error", "Ctrl-C"])
def test_a_failing_save_leaves_the_old_file(suffix, failing, error, tmp_path, monkeypatch):
    path = tmp_path / f"a{suffix}"
    null().save(path)
    before = path.read_bytes()

    def fail(*given, **options):
        if failing == "numpy.savez":
            given[0].write(b"half of it")
        raise error

    monkeypatch.setattr(failing, fail)
    if failing == "numpy.savez" and suffix == ".json":
        return
    with pytest.raises(type(error)):
        dataclasses.replace(null(), measure="another").save(path)
    monkeypatch.undo()
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == [path.name]


def test_what_cannot_be_written_leaves_the_old_file(tmp_path):
    path = tmp_path / "a.npz"
    null().save(path)
    before = path.read_bytes()
    with pytest.raises(TypeError):
        dataclasses.replace(null(), measure=object()).save(path)
    with pytest.raises(FileNotFoundError):
        null().save(tmp_path / "none" / "a.npz")
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["a.npz"]


@pytest.mark.skipif(os.name != "posix", reason="permissions and links of POSIX")
def test_saving_keeps_permissions_and_links(tmp_path):
    path, link = tmp_path / "a.json", tmp_path / "link.json"
    mask = os.umask(0o027)
    try:
        null().save(path)
    finally:
        os.umask(mask)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    path.chmod(0o604)
    link.symlink_to(path.name)
    dataclasses.replace(null(), measure="another").save(link)
    assert link.is_symlink()
    assert rl.load(path).measure == "another"
    assert stat.S_IMODE(path.stat().st_mode) == 0o604
    null().save(tmp_path / ("x" * 245 + ".json"))


def test_importances_of_real_runs_are_read_again(tmp_path):
    X = np.random.default_rng(0).normal(size=(12, 3))

    def f(X):
        return X[:, 0] + X[:, 1] * X[:, 2]

    runs = {
        "pairs": rl.model_reliance(f, X, X[:, 0], pairs="all", keep=("rows", "ice"), rng=0),
        "halves": rl.model_reliance(f, X, X[:, 0], pairs="halves", rng=0),
        "ablation": rl.ablation_importance(f, X, X[:, 0], draws=3, rng=0),
        "permutation": rl.permutation_importance(f, X, X[:, 0], draws=rl.Until(), rng=0),
        "metric": rl.permutation_importance(f, X, X[:, 0], loss="r2", draws=4, rng=0),
    }
    for name, found in runs.items():
        for suffix in (".json", ".npz"):
            path = tmp_path / f"{name}{suffix}"
            found.save(path)
            curves = found.curves
            again = rl.load(path)
            same(dataclasses.replace(found, curves=None), dataclasses.replace(again, curves=None))
            assert (curves is None) == (again.curves is None)
            assert type(again) is rl.Importance


@every
@pytest.mark.parametrize("suffix", [".json", ".npz"])
def test_ranked_results_keep_each_features_own_numbers(example, suffix, tmp_path):
    found = example()
    ranked = found.ranked()
    ranked.save(tmp_path / f"a{suffix}")
    assert rl.load(tmp_path / f"a{suffix}").to_dict() == ranked.to_dict()
    before, after = found.to_frame(), ranked.to_frame()
    if isinstance(found, rl.LocalImportance | Results):  # rows, and names of results, stay in their order
        before, after = before.sort_index(), after.sort_index()
    assert sorted(after.index) == sorted(before.index)
    assert after.loc[before.index].equals(before)


def test_curves_stay_with_their_features_in_a_file_of_a_ranked_result(tmp_path):
    X = np.random.default_rng(0).normal(size=(12, 2))
    found = rl.model_reliance(lambda X: X[:, 1], X, X[:, 1] + 1.0, pairs="all", keep="curves", rng=0).ranked()
    assert found.names == ("x1", "x0")
    found.save(tmp_path / "a.json")
    again = rl.load(tmp_path / "a.json")
    np.testing.assert_array_equal(again.curves["x1"].values, np.sort(X[:, 1]))
    np.testing.assert_array_equal(again.curves["x0"].values, np.sort(X[:, 0]))


def test_names_with_a_long_beginning_and_end_in_common_differ_in_tables_and_figures():
    start, end = "the mean of all measurements of the sensor ", " over the last thirty days of the year"
    names = (*(f"{start}{k}{end}" for k in "abc"), "a  b", "a b", "x" * 41, "x" * 42)
    numbers = np.linspace(1.0, 2.0, len(names))
    text = repr(Delta(names, numbers, numbers, np.full(len(names), 9.0)))
    shown = [line[:44].rstrip() for line in text.splitlines()[2:]]
    assert len(set(shown)) == len(names)
    assert [any(f"...{k} over" in line for line in shown) for k in "abc"] == [True] * 3
    local = rl.LocalImportance(names, np.array([0]), numbers[None], numbers[None], np.ones(1), "l", 1, 2, 3, np.ones(7))
    header = local._table().header[2:]
    assert len(set(header)) == len(names)
    assert max(map(len, header)) <= 24


@every
def test_every_result_prints_tabulates_and_draws_what_it_does_not_know(example):
    plt = pytest.importorskip("matplotlib.pyplot")
    plt.switch_backend("Agg")
    found = example()
    assert isinstance(found, Result)
    assert "<table>" in found._repr_html_()
    assert "\n" in repr(found)
    assert len(found.to_frame()) >= 1
    np.atleast_1d(found.plot())[0].figure.canvas.draw()
    plt.close("all")


def test_every_exported_result_is_one_of_them():
    exported = {value for value in map(rl.__dict__.get, rl.__all__) if isinstance(value, type)}
    returned = {kind for kind in exported if hasattr(kind, "to_dict")}
    assert returned <= {type(example()) for example in ALL}
    assert len(returned) >= 13
