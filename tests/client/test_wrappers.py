"""The wrappers for scikit-learn and river: what they send, what they return, and the other libraries' own checks."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from river import checks, datasets as river_datasets, dummy, evaluate, linear_model, metrics, preprocessing
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from tests.client.world import Server
from treecal.client import Answer, Client, Receipt
from treecal.client.river import ServedClassifier as ServedByRiver
from treecal.client.sklearn import ServedClassifier
from treecal.exceptions import OutcomeError, ParameterError

X = np.linspace(-2, 2, 40).reshape(-1, 1)
Y = np.where(X[:, 0] > 0.3, "yes", "no")
LONG = 20.0


class Echo:
    """A stand-in for a client, which the other libraries may copy and pickle: every forecast is fine as it is."""

    def __init__(self) -> None:
        self.sent: list[Any] = []

    def __deepcopy__(self, memo: Any) -> Echo:
        return self

    def __repr__(self) -> str:
        return "Echo()"

    def forecast(self, stream: str, p: Any, *, id: str | None = None, timeout: float = 1.0) -> Answer:  # noqa: A002
        self.sent.append((stream, id))
        return Answer(id or str(len(self.sent)), np.asarray(p).tolist())

    def forecast_many(
        self, stream: str, P: Iterable[Any], *, ids: Iterable[str] | None = None, timeout: float = 1.0
    ) -> list[Answer]:
        rows = list(P)
        names = list(ids) if ids is not None else [str(k) for k in range(len(rows))]
        return [self.forecast(stream, p, id=name) for p, name in zip(rows, names, strict=True)]

    def outcome(self, stream: str, id: str, y: int) -> Receipt:  # noqa: A002
        self.sent.append((stream, id, y))
        return Receipt(stream, id, "learned")

    def outcomes(self, rows: Iterable[tuple[str, str, Any]]) -> list[Receipt]:
        return [self.outcome(*row) for row in rows]


ECHO: Any = Echo()
Accuracy: Any = metrics.Accuracy  # river leaves these untyped


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as found:
        found.books.streams["rain"] = {"name": "rain", "classes": ["no", "yes"]}
        yield found


# scikit-learn


@pytest.mark.heavy
@parametrize_with_checks(  # type: ignore[untyped-decorator]
    [ServedClassifier(LogisticRegression(), client=ECHO, stream="rain")]
)
def test_sklearn_checks(estimator: Any, check: Callable[[Any], None]) -> None:
    check(estimator)


def test_probabilities_of_a_fitted_model_are_corrected(server: Server, tmp_path: Path) -> None:
    model = GaussianNB().fit(X, Y)
    with Client(server.url, spool=tmp_path / "spool") as client:
        served = ServedClassifier(model, client=client, stream="rain", timeout=LONG)
        np.testing.assert_array_equal(served.predict_proba(X), model.predict_proba(X)[:, ::-1])  # it swaps them
        assert served.predict(X).tolist() == ["no" if label == "yes" else "yes" for label in model.predict(X)]
        answers = served.forecast(X[:3], ids=[17, 18, "a"])
        assert [answer.id for answer in answers] == ["17", "18", "a"]
        assert [r.status for r in served.outcomes([17, "18", "a"], Y[:3])] == ["learned"] * 3
        server.stop()
        np.testing.assert_array_equal(served.predict_proba(X), model.predict_proba(X))
    assert {name: y for (_, name), y in server.books.outcomes.items()} == {"17": 0, "18": 0, "a": 0}


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_ids_in_a_column(library: str) -> None:
    frame = import_module(library).DataFrame({"x": X[:, 0], "order": range(len(X))})
    echo: Any = Echo()
    served = ServedClassifier(LogisticRegression(), client=echo, stream="rain", id_column="order").fit(frame, Y)
    assert served.n_features_in_ == 1
    served.predict_proba(frame[:3])
    assert echo.sent == [("rain", "0"), ("rain", "1"), ("rain", "2")]
    with pytest.raises(ParameterError, match="no column 'order'"):
        served.predict_proba(X)


def test_it_is_an_estimator_like_others() -> None:
    echo: Any = Echo()
    served = ServedClassifier(make_pipeline(StandardScaler(), LogisticRegression()), client=echo, stream="rain")
    again = clone(served)
    assert again.client is echo
    assert again.get_params()["estimator__logisticregression__C"] == 1.0
    with Client("http://127.0.0.1:9") as client:
        assert clone(ServedClassifier(GaussianNB(), client=client)).client is client
    assert make_pipeline(StandardScaler(), served).fit(X, Y).predict(X).shape == (40,)
    assert again.fit(X[:0:-1], Y[:0:-1]).score(X, Y) > 0.8


def test_what_sklearn_is_refused() -> None:
    model = GaussianNB().fit(X, Y)
    served = ServedClassifier(model, client=ECHO, stream="rain")
    with pytest.raises(OutcomeError, match=r"y\[1\] is 'maybe', expected one of"):
        served.outcomes(["a", "b"], ["no", "maybe"])
    with pytest.raises(ParameterError, match="2 ids and 1 labels"):
        served.outcomes(["a", "b"], ["no"])
    with pytest.raises(OutcomeError, match="an id is nan"):
        served.forecast(X[:1], ids=[float("nan")])
    for act in (lambda: ServedClassifier(model).predict(X), lambda: ServedClassifier(model).outcomes(["a"], ["no"])):
        with pytest.raises(ParameterError, match="client is None"):
            act()


# river


@pytest.mark.heavy
def test_river_checks() -> None:
    model: Any = preprocessing.StandardScaler() | linear_model.LogisticRegression()
    served = ServedByRiver(model, ECHO, "rain", [False, True])
    for check in checks.yield_checks(served):
        if getattr(check, "__name__", "") != "check_init_has_default_params_for_tests":  # there is no client by default
            check(served.clone())


def test_a_stream_of_river(server: Server) -> None:
    data = list(river_datasets.Phishing().take(50))
    with Client(server.url) as client:
        model = ServedByRiver(dummy.PriorClassifier(), client, "rain", [False, True], timeout=LONG)
        evaluate.progressive_val_score(data, model, Accuracy(), delay=5)
    books = server.books
    assert len(books.forecasts) == len(books.outcomes) == 50
    names = [name for what, _, name in books.log if what == "forecast"]
    assert [books.outcomes["rain", name] for name in names] == [int(y) for _, y in data]


def test_river_with_ids() -> None:
    echo: Any = Echo()
    model = ServedByRiver(dummy.PriorClassifier(), echo, "rain", ["no", "yes"], id_feature="order")
    assert model.predict_proba_one({"order": 17, "price": 3.5}) == {"no": 0.5, "yes": 0.5}
    model.learn_one({"order": 17, "price": 3.5}, "yes")
    assert model.predict_proba_one({"order": 18}) == {"no": 0.0, "yes": 1.0}
    assert echo.sent == [("rain", "17"), ("rain", "17", 1), ("rain", "18")]


def test_the_same_features_twice() -> None:
    echo: Any = Echo()
    model = ServedByRiver(dummy.PriorClassifier(), echo, "rain", ["no", "yes"])
    model.learn_one({"a": 1}, "no")  # there was no forecast
    model.predict_proba_one({"a": 1})
    model.predict_proba_one({"a": 1})
    model.learn_one({"a": 1}, "yes")
    model.learn_one({"a": 1}, "no")
    model.learn_one({"a": 1}, "no")
    assert [each for each in echo.sent if len(each) == 3] == [("rain", "1", 1), ("rain", "2", 0)]


def test_forecasts_that_are_never_settled_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("treecal.client.river._MOST_WAITING", 3)
    echo: Any = Echo()
    model = ServedByRiver(dummy.PriorClassifier(), echo, "rain", ["no", "yes"])
    for k in range(5):
        model.predict_proba_one({"a": k})
    for k in range(5):
        model.learn_one({"a": k}, "no")
    assert [each[1] for each in echo.sent if len(each) == 3] == ["3", "4", "5"]


def test_what_river_is_refused() -> None:
    make: Any = ServedByRiver
    with pytest.raises(ParameterError, match="classifier is 3"):
        make(3, Echo(), "rain", ["no", "yes"])
    with pytest.raises(ParameterError, match="two or more distinct"):
        make(dummy.PriorClassifier(), Echo(), "rain", ["no", "no"])
    model = make(dummy.PriorClassifier(), Echo(), "rain", ["no", "yes"], id_feature="order")
    with pytest.raises(ParameterError, match="x has no 'order'"):
        model.predict_proba_one({"a": 1})
    with pytest.raises(OutcomeError, match="'maybe' is not one of"):
        model.learn_one({"order": 1}, "maybe")
    with pytest.raises(ParameterError, match="not hashable"):
        make(dummy.PriorClassifier(), Echo(), "rain", ["no", "yes"]).predict_proba_one({"a": []})


# What is missing


def test_missing_packages_are_named() -> None:
    missing = [("httpcore", "", "client"), ("msgspec", "", "client"), ("sklearn", ".sklearn", "sklearn")]
    script = """
import sys
for package, module, _ in {missing}:
    kept = sys.modules.pop(package, None)
    sys.modules[package] = None
    for name in [name for name in sys.modules if name.startswith("treecal.client")]:
        del sys.modules[name]
    try:
        __import__("treecal.client" + module)
    except Exception as error:
        print(error.hint)
    del sys.modules[package]
""".replace("{missing}", repr([*missing, ("river", ".river", "river")]))
    hints = subprocess.check_output([sys.executable, "-c", script], text=True).splitlines()
    extras = ["client", "client", "sklearn", "river"]
    assert [hint.rpartition("(")[2] for hint in hints] == [f"the extra {extra})." for extra in extras]
