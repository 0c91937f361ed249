"""Many labels over one row: each is what its corrector and its monitor alone would be, missing outcomes or not."""

from __future__ import annotations

import numpy as np
import pytest

import treecal as tc
from treecal import state
from treecal.exceptions import ForecastError, OutcomeError, ParameterError, SnapshotError

NAMES = ["fracture", "mass", "oedema"]
SPACE = tc.Simplex(2)


def drawn(rows: int, missing: float, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(rows, 3))
    y = (rng.random((rows, 3)) < 1 / (1 + np.exp(-z))).astype(float)
    y[rng.random((rows, 3)) < missing] = np.nan
    return 1 / (1 + np.exp(-z * [1, 3, 1])), y


def test_each_label_is_by_itself() -> None:
    P, Y = drawn(120, 0.3)
    labels = tc.Labels(NAMES, alpha=0.01)
    correctors = [tc.PlattScaling(SPACE) for _ in NAMES]
    monitors = [tc.Monitor(SPACE, alpha=0.01) for _ in NAMES]
    for p, y in zip(P, Y, strict=True):
        each = [c.predict_many([[1 - q, q]])[0, 1] for c, q in zip(correctors, p, strict=True)]
        assert labels.predict(p).tolist() == each
        labels.update(p, y)
        for k in np.flatnonzero(~np.isnan(y)):
            both = [1 - p[k], p[k]]
            correctors[k].learn(both, int(y[k]))
            monitors[k].update(both, int(y[k]))
    assert labels.rounds == {name: m.rounds for name, m in zip(NAMES, monitors, strict=True)}
    assert labels.e_values == {name: m.e_value for name, m in zip(NAMES, monitors, strict=True)}
    assert labels.alarms == {name: m.alarm for name, m in zip(NAMES, monitors, strict=True) if m.alarm is not None}
    assert list(labels.alarms) == ["mass"]
    assert labels.discoveries() == ["mass"]
    many = tc.Labels(NAMES, alpha=0.01)
    many.update(P, Y)
    assert state.dumps(many) == state.dumps(labels)


def test_snapshots_resume() -> None:
    P, Y = drawn(300, 0.2)
    whole, half = tc.Labels(NAMES), tc.Labels(NAMES)
    whole.update(P, Y)
    half.update(P[:100], Y[:100])
    twin = state.loads(state.dumps(half))
    twin.update(P[100:], Y[100:])
    assert state.dumps(twin) == state.dumps(whole)
    with pytest.raises(SnapshotError):
        tc.Labels(NAMES[:2]).set_state(whole.get_state())


def test_a_fitted_corrector_is_where_each_begins() -> None:
    P, Y = drawn(300, 0.0)
    fitted = tc.PlattScaling(SPACE).fit(np.column_stack([1 - P[:, 1], P[:, 1]]), Y[:, 1].astype(int))
    labels = tc.Labels(NAMES, corrector=fitted)
    assert labels.predict([0.9, 0.9, 0.9]).tolist() == [fitted.predict_many([[0.1, 0.9]])[0, 1]] * 3
    labels.update(P, Y)
    assert state.dumps(state.loads(state.dumps(labels))) == state.dumps(labels)


def test_invalid_input_is_named_and_changes_nothing() -> None:
    P, Y = drawn(20, 0.0)
    labels = tc.Labels(NAMES)
    before = state.dumps(labels)
    wrong = P.copy()
    wrong[7, 1] = 1.5
    with pytest.raises(ForecastError, match=r"'mass' in row 7 is 1\.5"):
        labels.update(wrong, Y)
    with pytest.raises(OutcomeError, match="'oedema' is 2"):
        labels.update(P[0], [0, 1, 2])
    with pytest.raises(ForecastError, match="expected"):
        labels.predict([0.5])
    with pytest.raises(OutcomeError, match="shape"):
        labels.update(P, Y[:3])
    assert state.dumps(labels) == before
    for names in ("mass", [], ["a", "a"]):
        with pytest.raises(ParameterError):
            tc.Labels(names)
    with pytest.raises(ParameterError, match="two classes"):
        tc.Labels(NAMES, corrector=tc.VectorScaling(tc.Simplex(3)))


def test_masked_outcomes_are_not_known() -> None:
    P, Y = drawn(300, 0.3)
    masked = np.ma.masked_array(np.where(np.isnan(Y), 1.0, Y), np.isnan(Y))
    one, other = tc.Labels(NAMES), tc.Labels(NAMES)
    one.update(P, Y)
    other.update(P, masked)
    assert masked.mask.any()
    assert state.dumps(one) == state.dumps(other)
    with pytest.raises(OutcomeError, match="not an array of numbers"):
        one.update(P[:2], [[1], [1, 0]])


@pytest.mark.heavy
def test_false_discoveries_of_dependent_labels() -> None:
    """Twenty labels with one common cause, of which half are right: of what is named, few are."""
    shares, found = [], 0
    for seed in range(500):
        rng = np.random.default_rng([1, seed])
        z = rng.normal(size=(400, 1)) + 0.3 * rng.normal(size=(400, 20))
        u = rng.random((400, 1))  # the same for all labels: they come together
        Y = (u < 1 / (1 + np.exp(-z))).astype(float)
        labels = tc.Labels([str(k) for k in range(20)])
        labels.update(1 / (1 + np.exp(-z * np.where(np.arange(20) < 10, 1.0, 2.0))), Y)
        off = [int(name) for name in labels.discoveries(0.05)]
        shares.append(sum(k < 10 for k in off) / max(len(off), 1))
        found += len(off)
    print(f"false discovery rate {np.mean(shares):.4f}, {found / 500:.1f} discoveries on average")
    assert np.mean(shares) <= 0.05
