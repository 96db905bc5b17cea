"""``python -m reliance``: models and tables in files, an answer on the standard output, errors in words."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import reliance as rl
import report_pages
from reliance.cli import main

pd = pytest.importorskip("pandas")
pytest.importorskip("matplotlib")
lightgbm = pytest.importorskip("lightgbm")
xgboost = pytest.importorskip("xgboost")

NAMES = ["age", "dose", "noise"]
_RNG = np.random.default_rng(0)
X = _RNG.normal(size=(80, 3))
Y = X[:, 0] + 0.5 * X[:, 1] + 0.1 * _RNG.normal(size=80)
OWN = "import numpy as np\n\ndef model(X):\n    return X[:, 0] + 0.5 * X[:, 1]\n\nclass held:\n    inner = model\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A table as CSV, and a module of the user's; the folder is where commands run."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "own_models", raising=False)
    table = pd.DataFrame(X, columns=NAMES)
    table["y"] = Y
    table.to_csv("rows.csv", index=False)
    (tmp_path / "own_models.py").write_text(OWN)
    return tmp_path


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    try:
        code = main(arguments)
    except SystemExit as stopped:  # argparse
        code = int(stopped.code or 0)
    said = capsys.readouterr()
    return code, said.out, said.err


def values(out: str) -> dict[str, float]:
    found = json.loads(out)
    return dict(zip(found["names"], found["values"], strict=True))


def expect(out: str, model: Any, **options: Any) -> None:
    """What was printed is what the method returns."""
    expected = rl.permutation_importance(model, X, options.pop("y", Y), names=NAMES, draws=5, rng=0, **options)
    assert values(out) == pytest.approx(dict(zip(expected.names, expected.values.tolist(), strict=True)), rel=1e-6)


def importance(capsys: pytest.CaptureFixture[str], model: str, data: str = "rows.csv", *more: str) -> str:
    code, out, err = run(capsys, "importance", model, data, "--target", "y", "--draws", "5", "--json", *more)
    assert code == 0, err
    return out


# ---------------------------------------------------------------------------------------------------------------------
# Models


def test_an_object_of_a_module(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("own_models:model", "own_models:held.inner"):
        expect(importance(capsys, name), lambda X: X[:, 0] + 0.5 * X[:, 1])


def test_an_onnx_file(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    helper = onnx.helper
    weights = onnx.numpy_helper.from_array(np.array([[1.0], [0.5], [0.0]], dtype=np.float32), "W")
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["X", "W"], ["Z"])],
        "linear",
        [helper.make_tensor_value_info("X", onnx.TensorProto.FLOAT, [None, 3])],
        [helper.make_tensor_value_info("Z", onnx.TensorProto.FLOAT, [None, 1])],
        [weights],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    onnx.save(model, "model.onnx")
    (folder / "broken.onnx").write_bytes(b"nothing of the kind")
    assert run(capsys, "importance", "broken.onnx", "rows.csv", "--target", "y")[0] == 2
    out = importance(capsys, "model.onnx")
    expected = rl.permutation_importance(rl.models.onnx("model.onnx"), X, Y, names=NAMES, draws=5, rng=0)
    assert values(out) == dict(zip(expected.ranked().names, expected.ranked().values.tolist(), strict=True))


@pytest.mark.parametrize("objective", ["regression", "binary", "multiclass"])
def test_a_lightgbm_file(folder: Path, capsys: pytest.CaptureFixture[str], objective: str) -> None:
    labels = {"regression": Y, "binary": (Y > 0) * 1, "multiclass": np.digitize(Y, [-0.5, 0.5])}[objective]
    options = {"objective": objective, "verbosity": -1, "min_data_in_leaf": 5, "num_threads": 1}
    options |= {"num_class": 3} if objective == "multiclass" else {}
    booster = lightgbm.train(options, lightgbm.Dataset(X, labels, feature_name=NAMES), 5)
    booster.save_model("model.txt")
    table = pd.DataFrame(X, columns=NAMES)[["noise", "age", "dose"]]  # the model's order counts, not the table's
    table["y"] = labels
    table.to_csv("rows.csv", index=False)
    out = importance(capsys, "model.txt")
    loss = {"regression": "squared_error", "binary": "log_loss", "multiclass": "log_loss"}[objective]
    assert json.loads(out)["loss"] == loss
    expect(out, lambda rows: booster.predict(rows), y=labels, loss=loss)


@pytest.mark.parametrize("suffix", ["json", "ubj"])
@pytest.mark.parametrize("classes", [False, True])
def test_an_xgboost_file(folder: Path, capsys: pytest.CaptureFixture[str], suffix: str, classes: bool) -> None:
    pytest.importorskip("sklearn")
    labels = (Y > 0) * 1 if classes else Y
    kind = xgboost.XGBClassifier if classes else xgboost.XGBRegressor
    model = kind(n_estimators=5, n_jobs=1).fit(X, labels)
    model.save_model(f"model.{suffix}")
    pd.DataFrame(X, columns=NAMES).assign(y=labels).to_csv("rows.csv", index=False)
    expect(importance(capsys, f"model.{suffix}"), model, y=labels)


def test_a_pickle_is_opened_only_if_trusted(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    linear = pytest.importorskip("sklearn.linear_model")
    joblib = pytest.importorskip("joblib")
    table = pd.DataFrame(X, columns=NAMES)
    model = linear.LinearRegression().fit(table, Y)
    for name in ("model.pkl", "model.bin"):
        (folder / name).write_bytes(pickle.dumps(model))
    joblib.dump(model, "model.joblib")
    for name in ("model.pkl", "model.bin", "model.joblib"):
        code, out, err = run(capsys, "importance", name, "rows.csv", "--target", "y")
        assert (code, out) == (2, "")
        assert "can run any code" in err
        assert "--trust" in err
        expect(importance(capsys, name, "rows.csv", "--trust"), linear.LinearRegression().fit(X, Y))


def test_a_torch_file_is_opened_only_if_trusted(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torch = pytest.importorskip("torch")
    module = torch.nn.Linear(3, 1)
    torch.save(module, "model.pt")
    torch.save(module.state_dict(), "weights.pt")
    assert "--trust" in run(capsys, "importance", "model.pt", "rows.csv", "--target", "y")[2]
    assert "holds weights" in run(capsys, "importance", "weights.pt", "rows.csv", "--target", "y", "--trust")[2]
    expect(importance(capsys, "model.pt", "rows.csv", "--trust"), module)


class Trap:
    """What a pickle can do to whoever opens it."""

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return open, ("sprung", "w")  # type: ignore[return-value]


@pytest.mark.parametrize("name", ["model.pkl", "model.txt", "model.onnx", "model.json", "model", "model.pt"])
def test_no_name_makes_a_pickle_run(folder: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    (folder / name).write_bytes(pickle.dumps(Trap()))
    assert run(capsys, "importance", name, "rows.csv", "--target", "y")[0] == 2
    assert not (folder / "sprung").exists()


# ---------------------------------------------------------------------------------------------------------------------
# Tables


def test_tables_of_every_kind(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("pyarrow")
    table = pd.read_csv("rows.csv")
    table.to_parquet("rows.parquet")
    table.to_feather("rows.arrow")
    table.to_csv("rows.csv.gz", index=False)
    first = importance(capsys, "own_models:model")
    for data in ("rows.parquet", "rows.arrow", "rows.csv.gz"):
        assert values(importance(capsys, "own_models:model", data)) == values(first)


def test_text_reaches_models_that_take_tables(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sklearn = pytest.importorskip("sklearn")
    from sklearn.compose import make_column_transformer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder

    assert sklearn
    table = pd.DataFrame({"a": X[:, 0], "town": ["north", "south"] * 40})
    labels = np.where(Y > 0, "good", "bad")
    encode = make_column_transformer((OneHotEncoder(), ["town"]), remainder="passthrough")
    model = make_pipeline(encode, LogisticRegression()).fit(table, labels)
    (folder / "model.pkl").write_bytes(pickle.dumps(model))
    table.assign(y=labels).to_csv("rows.csv", index=False)
    expected = rl.permutation_importance(model, table, labels, draws=5, rng=0)
    out = importance(capsys, "model.pkl", "rows.csv", "--trust")
    assert values(out) == pytest.approx(dict(zip(expected.names, expected.values.tolist(), strict=True)))


def test_categories_of_a_lightgbm_file(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = pd.DataFrame({"a": X[:, 0], "town": pd.Categorical(["north", "south"] * 40)})
    y = Y + 2.0 * (table["town"] == "north")
    options = {"verbosity": -1, "num_threads": 1, "min_data_in_leaf": 5, "min_data_per_group": 5}
    booster = lightgbm.train(options, lightgbm.Dataset(table, y), 5)
    booster.save_model("model.txt")
    table.assign(y=y).to_csv("rows.csv", index=False)
    expected = rl.permutation_importance(booster.predict, table, y, draws=5, rng=0)
    assert expected.values[1] > 0
    out = importance(capsys, "model.txt")
    assert values(out) == pytest.approx(dict(zip(expected.names, expected.values.tolist(), strict=True)))


def test_pandas_is_asked_for(folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    code, _, err = run(capsys, "importance", "own_models:model", "rows.csv", "--target", "y")
    assert code == 2
    assert "pip install reliance[cli]" in err


def test_chosen_and_ignored_columns(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = pd.read_csv("rows.csv")
    table.insert(0, "id, of patients", range(80))
    table.to_csv("rows.csv", index=False)
    more = ("--ignore", "id, of patients", "--features", "age,noise")
    assert set(values(importance(capsys, "own_models:model", "rows.csv", *more))) == {"age", "noise"}


# ---------------------------------------------------------------------------------------------------------------------
# Commands


def test_the_table_alone_is_on_the_standard_output(folder: Path) -> None:
    command = [sys.executable, "-m", "reliance", "importance", "own_models:model", "rows.csv", "--target", "y"]
    # Whatever the path was relative to, these sources are meant.
    around = {**os.environ, "PYTHONPATH": str(Path(rl.__file__).parents[1])}
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, cwd=folder, env=around)
    assert done.returncode == 0, done.stderr
    found = rl.permutation_importance(lambda X: X[:, 0] + 0.5 * X[:, 1], X, Y, names=NAMES, rng=0).ranked()
    assert done.stdout == f"{found!r}\n"


def test_a_report(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    more = ("--train", "rows.csv", "--given", "dose", "--draws", "5", "--seed", "4", "-o", "page.html")
    code, out, err = run(capsys, "report", "own_models:model", "rows.csv", "--target", "y", *more)
    assert (code, out) == (0, "page.html\n"), err
    page = report_pages.read(folder / "page.html")
    expected = rl.permutation_importance(lambda X: X[:, 0] + 0.5 * X[:, 1], X, Y, names=NAMES, draws=5, rng=4)
    (table,) = report_pages.tables(report_pages.section(page, "importance"))
    assert table.column("Importance", NAMES) == expected.values.tolist()
    (given,) = report_pages.tables(report_pages.section(page, "given"))
    assert "Given dose" in given.heads
    assert report_pages.section(page, "splits")


def test_warnings_go_to_the_other_stream(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    more = ("--target", "y", "--draws", "2", "--json")
    code, out, err = run(capsys, "importance", "own_models:model", "rows.csv", *more)
    assert code == 0
    assert json.loads(out)
    assert err.startswith("python -m reliance: warning: draws=2")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "required"),
        (("importance", "own_models:model", "rows.csv"), "--target"),
        (("importance", "own_models:model", "rows.csv", "--target", "z"), "'z' is not a column"),
        (("importance", "own_models:model", "rows.xls", "--target", "y"), "ends in none of"),
        (("importance", "own_models:model", "none.csv", "--target", "y"), "is not a file"),
        (("importance", "own_models:model", "https://example.org/a.csv", "--target", "y"), "is not a file"),
        (("importance", "own_models:other", "rows.csv", "--target", "y"), "has no 'other'"),
        (("importance", "no_such_module:model", "rows.csv", "--target", "y"), "importing 'no_such_module' failed"),
        (("importance", "model.onnx", "rows.csv", "--target", "y"), "is not a file"),
        (("importance", "own_models.py", "rows.csv", "--target", "y"), "no known kind"),
        (("importance", "own_models:model", "rows.csv", "--target", "y", "--features", "agee"), "'agee'"),
        (("importance", "own_models:model", "rows.csv", "--target", "y", "--ignore", "id"), "'id'"),
        (("importance", "own_models:model", "rows.csv", "--target", "y", "--loss", "best"), "best"),
        (("importance", "own_models:model", "rows.csv", "--target", "y", "--draws", "0"), "draws=0"),
        (("importance", "own_models:model", "rows.csv", "--target", "y", "--draws", "many"), "invalid int"),
        (("report", "own_models:model", "rows.csv", "--target", "y", "-o", "page.pdf"), "must end in .html"),
        (("report", "own_models:model", "rows.csv", "--target", "y", "--given", "doses"), "'doses'"),
        (("report", "own_models:model", "rows.csv", "--target", "y", "--sections", "all"), "'all'"),
    ],
)
def test_what_is_wrong_is_said_in_words(
    folder: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], words: str
) -> None:
    code, out, err = run(capsys, *arguments)
    assert (code, out) == (2, "")
    assert words in err
    assert "Traceback" not in err
    assert len(err.splitlines()[-1]) <= 340


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda table: table.assign(age=["a", "b"] * 40), "'age' holds no numbers"),
        (lambda table: table.assign(y=[None] * 5 + [1.0] * 75), "missing in 5 rows"),
        (lambda table: table[["y"]], "no column but 'y'"),
    ],
)
def test_odd_tables(folder: Path, capsys: pytest.CaptureFixture[str], change: Any, words: str) -> None:
    change(pd.read_csv("rows.csv")).to_csv("rows.csv", index=False)
    code, _, err = run(capsys, "importance", "own_models:model", "rows.csv", "--target", "y")
    assert code == 2
    assert words in err


def test_columns_of_the_model_must_be_there(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    booster = lightgbm.train(
        {"verbosity": -1, "num_threads": 1}, lightgbm.Dataset(X[:, :2], Y, feature_name=["age", "dose"]), 2
    )
    booster.save_model("model.txt")
    code, _, err = run(capsys, "importance", "model.txt", "rows.csv", "--target", "y")
    assert code == 2
    assert "DATA has 'noise', which the model does not take" in err
    assert run(capsys, "importance", "model.txt", "rows.csv", "--target", "y", "--ignore", "noise")[0] == 0
    code, _, err = run(capsys, "importance", "model.txt", "rows.csv", "--target", "y", "--ignore", "dose")
    assert code == 2
    assert "the model takes 'dose'" in err
