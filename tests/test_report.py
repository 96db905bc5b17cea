"""The report's page: its numbers are those of the results, it is whole HTML, and a section can fail by itself."""

from __future__ import annotations

import itertools
import math
import re
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import reliance as rl
import report_pages
from reliance.report import html
from report_pages import Node, Table

pytest.importorskip("matplotlib")
pytest.importorskip("sklearn")

ALL = ("importance", "splits", "given", "extrapolation", "curves", "class")


def plane(X: Any) -> Any:
    return X[:, 0] + 0.5 * X[:, 1]


def small(n: int = 60, p: int = 3) -> tuple[Any, Any]:
    X = np.random.default_rng(0).normal(size=(n, p))
    return X, X[:, 0] + 0.5 * X[:, 1] + np.random.default_rng(1).normal(size=n)


@pytest.fixture(scope="module")
def diabetes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    from sklearn.datasets import load_diabetes
    from sklearn.linear_model import Ridge
    from sklearn.model_selection import train_test_split

    data = load_diabetes()
    X_train, X, y_train, y = train_test_split(data.data, data.target, test_size=0.4, random_state=0)
    model = Ridge(alpha=0.01).fit(X_train, y_train)
    path = tmp_path_factory.mktemp("diabetes") / "audit.html"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = rl.report(model, X, y, path=path, train=(X_train, y_train), names=data.feature_names, rng=3)
    return {"model": model, "X": X, "y": y, "train": (X_train, y_train), "names": data.feature_names, "report": found}


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    from sklearn.datasets import load_digits
    from sklearn.linear_model import LogisticRegression

    data = load_digits()
    model = LogisticRegression(max_iter=2000, C=0.01).fit(data.data[:1200] / 16.0, data.target[:1200])
    X, y = data.data[1200:1500] / 16.0, data.target[1200:1500]
    path = tmp_path_factory.mktemp("digits") / "audit.html"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = rl.report(model, X, y, path=path, draws=3, names=data.feature_names, rng=0)
    return {"model": model, "X": X, "y": y, "names": data.feature_names, "report": found}


def page_of(made: dict[str, Any]) -> Node:
    return report_pages.read(made["report"].path)


def check_written(table: Table) -> None:
    """What is shown is the number itself, rounded."""
    for name, numbers in table.numbers.items():
        for number, written in zip(numbers, table.written[name], strict=True):
            plain = written.replace("\u2212", "-").replace(",", "")
            if plain in ("\u2013", "<0.001") or "\u221e" in plain:
                assert math.isnan(number) or math.isinf(number) or number < 0.001
                continue
            shown = float(plain.rstrip("%")) / (100 if plain.endswith("%") else 1)
            decimals = len(plain.rstrip("%").partition(".")[2]) + (2 if plain.endswith("%") else 0)
            assert "e" in plain or abs(shown - number) <= 0.5000001 * 10.0**-decimals, (name, number, written)


# ---------------------------------------------------------------------------------------------------------------------
# Numbers


def test_the_numbers_of_diabetes_are_those_of_the_methods(diabetes: dict[str, Any]) -> None:
    made, page = diabetes["report"], page_of(diabetes)
    model, X, y, names = (diabetes[key] for key in ("model", "X", "y", "names"))
    assert tuple(made.results) == ALL
    assert not made.failed
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        alone = rl.permutation_importance(model, X, y, draws=16, names=names, rng=3)
        splits = rl.compare_splits(
            model, train=diabetes["train"], test=(X, y), pairs=16, compare="difference", names=names, rng=3
        )
        good = rl.model_class_reliance(rl.LinearClass(), X, y, epsilon=0.05, names=names)
        far = rl.extrapolation_check(X, names=names, rng=3)
    (table,) = report_pages.tables(report_pages.section(page, "importance"))
    check_written(table)
    assert list(table.numbers) == list(alone.ranked().names)
    assert table.column("Importance", names) == alone.values.tolist()
    np.testing.assert_array_equal(table.column("From", names), alone.interval()[:, 0])
    np.testing.assert_array_equal(table.column("To", names), alone.interval()[:, 1])
    np.testing.assert_array_equal(table.column("p", names), alone.test().p_adjusted)
    np.testing.assert_allclose(table.column("Relative", names), alone.replaced_risk / alone.base_risk - 1, rtol=1e-9)
    (table,) = report_pages.tables(report_pages.section(page, "splits"))
    check_written(table)
    assert table.column("Training", names) == splits.on_train.values.tolist()
    assert table.column("Test", names) == splits.on_test.values.tolist()
    np.testing.assert_array_equal(table.column("From", names), splits.interval()[:, 0])
    (table,) = report_pages.tables(report_pages.section(page, "class"))
    check_written(table)
    assert table.column("Least", names) == good.lower.tolist()
    assert table.column("Most", names) == good.upper.tolist()
    np.testing.assert_allclose(table.column("This model", names), alone.replaced_risk / alone.base_risk)
    (table,) = report_pages.tables(report_pages.section(page, "extrapolation"))
    check_written(table)
    assert table.column("Distance ratio", names) == far.values.tolist()


def test_given_others_has_both_importances_and_the_change(diabetes: dict[str, Any]) -> None:
    made = diabetes["report"]
    (table,) = report_pages.tables(report_pages.section(page_of(diabetes), "given"))
    check_written(table)
    names = made["given"]["nothing"].names
    alone, rest = made["given"]["nothing"], made["given"]["all other features"]
    assert table.column("Given nothing", names) == alone.values.tolist()
    assert table.column("Given all other features", names) == rest.values.tolist()
    np.testing.assert_allclose(table.column("Change", names), alone.values - rest.values, atol=1e-9)
    words = report_pages.section(page_of(diabetes), "given").text
    assert "the value of a row in the same leaf of a tree for sex" in words  # which has two values


def test_curves_are_means_of_predictions(diabetes: dict[str, Any]) -> None:
    """Against a literal loop: the mean prediction with the feature at a value in every row."""
    found, X = diabetes["report"]["curves"], diabetes["X"]
    for name, curve in found.curves.items():
        column = diabetes["names"].index(name)
        for place in (0, len(curve.values) // 2, len(curve.values) - 1):
            rows = X.copy()
            rows[:, column] = curve.values[place]
            assert curve.mean[place] == pytest.approx(diabetes["model"].predict(rows).mean(), rel=1e-9)
    figures = report_pages.section(page_of(diabetes), "curves").all("img")
    assert len(figures) == 6


def test_the_summary_says_the_largest_importance(diabetes: dict[str, Any]) -> None:
    found = diabetes["report"]["importance"].ranked()
    words = report_pages.section(page_of(diabetes), "summary").text
    assert f"relies most on {found.names[0]}:" in words
    low, high = found.interval()[0]
    ends = re.search(r"95% interval ([\d,.]+) to ([\d,.]+)\)", words)
    assert ends is not None
    assert [float(end.replace(",", "")) for end in ends.groups()] == pytest.approx([low, high], abs=0.5)
    clear = int((found.test().p_adjusted < 0.05).sum())
    assert f"clearly relies on {clear} of 10 features" in words
    assert f"rises from {found.base_risk:,.0f} to {found.replaced_risk[0]:,.0f}" in words


@pytest.mark.slow
def test_the_numbers_of_digits_are_those_of_the_methods(digits: dict[str, Any]) -> None:
    made, page = digits["report"], page_of(digits)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        alone = rl.permutation_importance(
            digits["model"], digits["X"], digits["y"], draws=3, names=digits["names"], rng=0
        )
    assert made["importance"].loss == "log_loss"
    (table,) = report_pages.tables(report_pages.section(page, "importance"))
    check_written(table)
    assert len(table.numbers) == 64  # every feature, though the figure has the 30 largest
    assert table.column("Importance", digits["names"]) == alone.values.tolist()
    assert "30 largest of 64 features" in report_pages.section(page, "importance").all("figcaption")[0].text
    assert "class" in made.left_out
    assert "regression" in report_pages.section(page, "repeat").text
    assert len(made["given"]["nothing"].names) == 10
    # Constant pixels: no line through all others can be fitted, which the page says.
    assert set(made["given"]["all other features"].routes) == {"leaves"}
    words = report_pages.section(page, "given").text
    assert "the value of a row in the same leaf of a tree for" in words
    assert "could not be fitted: given is singular" in words


# ---------------------------------------------------------------------------------------------------------------------
# The page


def check_page(page: Node) -> None:
    """One whole document that loads nothing, and that can be read by ear."""
    (html,) = page.all("html")
    assert html["lang"] == "en"
    levels = [int(one.tag[1]) for one in _headings(page)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels))
    ids = [one.attributes["id"] for tag in ("section", "div") for one in page.all(tag) if "id" in one.attributes]
    assert len(set(ids)) == len(ids)
    for link in page.all("a"):
        assert link["href"].removeprefix("#") in ids
    for image in page.all("img"):
        assert len(image["alt"]) > 20
        assert image["src"].startswith("data:image/")
    for head in page.all("th"):
        assert head["scope"] in ("col", "row")
    assert [one["href"] for one in page.all("link")] == ["data:,"]
    assert len(page.all("script")) == len(page.all("style")) == 1
    policy = next(one["content"] for one in page.all("meta") if "http-equiv" in one.attributes)
    assert policy.startswith("default-src 'none'; img-src data:;")
    assert "unsafe" not in policy
    allowed = {"class", "id", "href", "src", "alt", "width", "height", "scope", "role", "tabindex", "lang", "title"}
    allowed |= {"aria-label", "data-tip", "data-value", "charset", "http-equiv", "content", "name", "rel"}
    for node in _nodes(page):
        assert set(node.attributes) <= allowed, node


def _nodes(node: Node) -> list[Node]:
    return [one for child in node.children if isinstance(child, Node) for one in (child, *_nodes(child))]


def _headings(page: Node) -> list[Node]:
    return [one for one in _nodes(page) if re.fullmatch("h[1-6]", one.tag)]


def test_pages_are_whole(diabetes: dict[str, Any], digits: dict[str, Any]) -> None:
    check_page(page_of(diabetes))
    check_page(page_of(digits))


def test_the_call_and_versions_are_there(diabetes: dict[str, Any]) -> None:
    words = report_pages.section(page_of(diabetes), "repeat").text
    assert "rl.report(model, X, y, path='audit.html', train=(X_train, y_train), draws=16, rng=3, names=names)" in words
    assert "rl.permutation_importance(model, X, y, draws=16, names=names, rng=3)" in words
    assert "key of the random numbers is 3" in words
    for package in ("Python", "numpy", "scikit-learn"):
        assert package in words
    assert np.__version__ in words


HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "a&amp;b' onmouseover='alert(1)",
    "$\\frac{1}{0}$ </title></style>",
)


def test_names_stay_text(tmp_path: Path) -> None:
    X, y = small(p=4)
    path = tmp_path / "<b>&'.html"

    def odd(X: Any) -> Any:
        return plane(X)

    odd.__qualname__ = "</h1><script>alert(2)</script>"
    with pytest.warns(UserWarning, match="onerror"):  # of names, in what the library warns about
        found = rl.report(
            odd, X, y, path=path, names=HOSTILE, train=(X + 1, y), given={"<i>two</i>": [0, 1]}, draws=3, rng=0
        )
    assert not found.failed
    page = report_pages.read(path)
    check_page(page)
    (table,) = report_pages.tables(report_pages.section(page, "importance"))
    assert set(table.numbers) == set(HOSTILE)
    assert "</h1><script>alert(2)</script>" in page.all("header")[0].text
    assert HOSTILE[0] in report_pages.section(page, "warnings").text
    alternatives = " ".join(image["alt"] for image in page.all("img"))
    assert all(name in alternatives for name in HOSTILE[:2])
    assert "Given <i>two</i>" in page.text
    assert "'<i>two</i>': [0, 1]" in report_pages.section(page, "repeat").text
    assert 'path="<b>&\'.html"' in page.text
    source = path.read_text(encoding="utf-8")
    assert "alert(1)</script>" not in source
    assert "<img src=x" not in source


def test_characters_that_no_page_can_hold(tmp_path: Path) -> None:
    X, y = small()
    names = ["nul\x00", "bell\x07 \x9f", "right \u202e left"]
    rl.report(plane, X, y, path=tmp_path / "a.html", names=names, sections=["importance"], draws=3, rng=0)
    page = report_pages.read(tmp_path / "a.html")
    (table,) = report_pages.tables(page)
    assert html.element("i", "half \ud800", title="\ufffe'") == '<i title="\ufffd&#x27;">half \ufffd</i>'
    assert set(table.numbers) == {"nul\ufffd", "bell\ufffd \ufffd", "right \u202e left"}


# ---------------------------------------------------------------------------------------------------------------------
# Sections as units


def test_a_section_fails_by_itself(tmp_path: Path) -> None:
    pd = pytest.importorskip("pandas")
    X, y = small()
    table = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "town": ["north", "south", "east"] * 20})

    def model(rows: Any) -> Any:
        return rows["a"].to_numpy() + (rows["town"] == "north").to_numpy()

    found = rl.report(model, table, y, path=tmp_path / "a.html", draws=3, rng=0)
    assert {"importance", "curves"} <= set(found.results)
    assert "'town'" in found.failed["extrapolation"]
    page = report_pages.read(tmp_path / "a.html")
    check_page(page)
    assert found.failed["extrapolation"] in report_pages.section(page, "extrapolation").text
    assert "could not be done" in report_pages.section(page, "summary").text
    with pytest.raises(KeyError, match="could not be made"):
        found["extrapolation"]


def test_errors_of_the_model_stay_in_their_section(tmp_path: Path) -> None:
    X, y = small()
    seen: list[int] = []
    rl.permutation_importance(lambda rows: (seen.append(1), plane(rows))[1], X, y, draws=3, rng=0)
    enough = len(seen)
    seen.clear()

    def model(rows: Any) -> Any:
        seen.append(len(rows))
        if len(seen) > enough:
            raise RuntimeError("the license has expired <b>")
        return plane(rows)

    found = rl.report(model, X, y, path=tmp_path / "a.html", draws=3, rng=0, sections=["importance", "curves"])
    assert list(found.results) == ["importance"]
    assert found.failed == {"curves": "RuntimeError: the license has expired <b>"}


def test_if_all_fails_nothing_is_written(tmp_path: Path) -> None:
    X, y = small()

    def model(rows: Any) -> Any:
        raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        rl.report(model, X, y, path=tmp_path / "a.html", sections=["importance", "curves"])
    assert list(tmp_path.iterdir()) == []


def test_a_sampler_that_was_chosen_is_not_replaced(tmp_path: Path) -> None:
    X, y = small()
    X[:, 2] = 1.0
    for given, failed in (("rest", {}), (rl.Given("rest", sampler="gaussian"), {"given"})):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = rl.report(
                plane, X, y, path=tmp_path / "a.html", given=given, sections=["importance", "given"], rng=0
            )
        assert set(found.failed) == set(failed)


def test_progress_counts_sections_and_run_is_respected(tmp_path: Path) -> None:
    X, y = small()
    calls: list[tuple[int, int]] = []
    found = rl.report(
        plane,
        X,
        y,
        path=tmp_path / "a.html",
        sections=["extrapolation", "importance"],
        progress=lambda done, total: calls.append((done, total)),
        run=rl.Run(block=(7, 2)),
        rng=0,
    )
    assert calls == [(1, 2), (2, 2)]
    assert found["importance"].block == (7, 2)
    page = report_pages.read(tmp_path / "a.html")
    names = [one["id"] for one in page.all("section")]
    assert names == ["summary", "importance", "extrapolation", "warnings", "repeat"]


def test_a_key_repeats_the_report(tmp_path: Path) -> None:
    X, y = small()
    first = rl.report(plane, X, y, path=tmp_path / "a.html", sections=["importance"])
    again = rl.report(plane, X, y, path=tmp_path / "b.html", sections=["importance"], rng=first.key)
    assert again["importance"].values.tolist() == first["importance"].values.tolist()


def test_curves_of_many_rows_come_from_a_sample(tmp_path: Path) -> None:
    X, y = small(n=2000, p=2)
    found = rl.report(plane, X, y, path=tmp_path / "a.html", sections=["importance", "curves"], draws=3, rng=0)
    assert found["curves"].n == math.isqrt(200_000 // 2)
    assert "a random sample of 316 of 2,000 rows" in report_pages.read(tmp_path / "a.html").text
    from sklearn.tree import DecisionTreeRegressor

    tree = DecisionTreeRegressor(max_depth=3, random_state=0).fit(X, y)
    free = rl.report(tree, X, y, path=tmp_path / "a.html", sections=["importance", "curves"], draws=3, rng=0)
    assert free["curves"].n == 2000
    assert "from all rows" in report_pages.read(tmp_path / "a.html").text


def test_two_classes_have_one_curve_and_no_labels_are_needed(tmp_path: Path) -> None:
    from sklearn.linear_model import LogisticRegression

    X, y = small()
    model = LogisticRegression().fit(X, y > 0)
    rl.report(model, X, y > 0, path=tmp_path / "a.html", draws=3, rng=0)
    assert "probability of the second class" in report_pages.read(tmp_path / "a.html").text
    found = rl.report(plane, X, path=tmp_path / "b.html", loss="prediction_shift", draws=3, rng=0)
    assert "class" in found.left_out
    check_page(report_pages.read(tmp_path / "b.html"))


def test_other_losses(tmp_path: Path) -> None:
    X, y = small()
    own = rl.Metric(lambda y, p: abs(y - p).max())
    found = rl.report(plane, X, y, path=tmp_path / "a.html", loss=own, sections=["importance"], draws=3, rng=0)
    assert np.isnan(found["importance"].std_error).all()
    page = report_pages.read(tmp_path / "a.html")
    check_page(page)
    assert "no interval is known" in report_pages.section(page, "summary").text
    rl.report(plane, X, y > 0, path=tmp_path / "a.html", loss="auc", draws=3, rng=0)
    assert "1 - AUC rises from" in report_pages.read(tmp_path / "a.html").text


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"path": "audit.pdf"}, "must end in .html"),
        ({"path": 3}, "path=3 is no file name"),
        ({"path": "no/such/folder/a.html"}, "folder does not exist"),
        ({"sections": "importance"}, "is not a list"),
        ({"sections": ["importances"]}, "'importances', which is unknown"),
        ({"sections": []}, "is empty"),
        ({"sections": ["splits"]}, "pass train="),
        ({"train": np.zeros(3)}, "train must be a tuple"),
        ({"loss": ["r2", "rmse"]}, "one loss"),
        ({"loss": "none such"}, "none such"),
        ({"given": "x0"}, "is one name"),
        ({"given": []}, "names no variable"),
        ({"given": 3}, "given=3"),
        ({"draws": 0}, "draws=0"),
        ({"n_repeats": 3}, "pass draws"),
        ({"progress": 3}, "progress=3"),
        ({"sections": ["class"], "loss": "absolute_error"}, "regression"),
    ],
)
def test_what_is_wrong_is_said_before_the_work(
    options: dict[str, Any], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    X, y = small()

    def model(rows: Any) -> Any:
        raise AssertionError("called")

    with pytest.raises((ValueError, TypeError, OSError)) as error:
        rl.report(model, X, y, **options)
    assert words in str(error.value)
    assert len(str(error.value)) <= 300
    assert list(tmp_path.iterdir()) == []


def test_pictures_have_a_picture_and_notebooks_a_frame(tmp_path: Path) -> None:
    X, y = small(p=6)
    pictures = X.reshape(-1, 2, 3)
    mask = np.array([[0, 0, 1], [2, 2, 1]])
    for features in (None, mask):
        found = rl.report(
            lambda rows: plane(rows.reshape(-1, 6)),
            pictures,
            y,
            path=tmp_path / "a.html",
            features=features,
            sections=["importance"],
            rng=0,
        )
        assert len(report_pages.read(found.path).all("img")) == 2
    (tmp_path / "frame.html").write_text(found._repr_html_(), encoding="utf-8")
    (frame,) = report_pages.read(tmp_path / "frame.html").all("iframe")
    assert frame["srcdoc"] == found.path.read_text(encoding="utf-8")
    assert frame["sandbox"] == "allow-scripts"
    found.path.unlink()
    assert found._repr_html_().startswith("<p>Report in ")


def test_matplotlib_is_asked_for_before_the_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    X, y = small()
    with pytest.raises(ImportError, match="matplotlib, which is not installed"):
        rl.report(plane, X, y, path=tmp_path / "a.html")


def test_what_was_there_is_replaced_as_a_whole(tmp_path: Path) -> None:
    X, y = small()
    path = tmp_path / "a.html"
    path.write_text("old")
    found = rl.report(plane, X, y, path=path, sections=["importance"], rng=0)
    assert path.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert [one.name for one in tmp_path.iterdir()] == ["a.html"]
    assert repr(found) == f"Report in {str(path)!r}: importance"
