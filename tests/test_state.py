from __future__ import annotations

import copy
import json
import os
import stat
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import treecal as tc
from tests.strategies import one_hot, play
from treecal import state
from treecal.exceptions import FileError, SnapshotError
from treecal.geometry import Gauge, Lp


def used_forecaster() -> tc.TreeCal:
    f = tc.TreeCal(tc.Simplex(3), arity=3)
    play(f, one_hot(3, 50, np.random.default_rng(0)))
    return f


def test_the_ledger_resumes_bit_for_bit(tmp_path: Path) -> None:
    outcomes = one_hot(3, 100, np.random.default_rng(1))
    f = tc.TreeCal(tc.Simplex(3), arity=3)
    _, ledger = play(f, outcomes[:60])
    tc.save(ledger, tmp_path / "ledger")
    again = tc.load(tmp_path / "ledger")
    assert again.rounds == 60
    for y in outcomes[60:]:
        x = f.predict()
        for each in (ledger, again):
            each.record(x, y)
        f.update(y)
    for per_node in (False, True):
        assert ledger.error("l2", per_node=per_node) == again.error("l2", per_node=per_node)
    assert state.dumps(ledger) == state.dumps(again)


@pytest.mark.parametrize(
    "space",
    [
        tc.Simplex(2),
        tc.Simplex(classes=["rain", "Föhn", "snow, then sun"]),
        tc.Box([0, -1], [0.1, 1]),
        tc.Ball(2, norm=Lp(3), radius=0.3, centre=[0.1, 0.2]),
        tc.Ball(2, norm="linf"),
        tc.Polytope(vertices=[[0.1, 0.2], [1.0, 0.0], [0.0, 1.0]]),
        tc.Polytope(halfspaces=([[1, 0], [-1, 0], [0, 1], [0, -1]], [1, 1, 1, 0.1])),
        tc.Product(tc.Simplex(2), tc.Product(tc.Ball(1), tc.Simplex(3))),
    ],
    ids=repr,
)
def test_sets_survive(space: tc.ConvexSet) -> None:
    again = state.loads(state.dumps(tc.TreeCal(space)))
    assert again.space == space
    assert np.array_equal(again.space.centre, space.centre)


def test_every_value_can_be_encoded() -> None:
    for value in (tc.Mahalanobis(np.eye(2)), Gauge(vertices=np.eye(2)), tc.SmoothedEntropy(3), tc.l2.squared):
        assert state._Decoder(None).value(json.loads(json.dumps(state._encode(value), allow_nan=False))) == value


@pytest.mark.parametrize("bits", [np.random.PCG64, np.random.MT19937, np.random.Philox, np.random.SFC64])
def test_generators_resume(bits: Any) -> None:
    f = tc.SampleTreeCal(tc.Simplex(2), block=2, rng=np.random.Generator(bits(5)))
    play(f, one_hot(2, 11, np.random.default_rng(0)))
    again = state.loads(state.dumps(f))
    assert again.rng is not f.rng
    for _ in range(20):
        assert again.predict() == f.predict()
        f.update([1, 0])
        again.update([1, 0])


def test_every_flipped_bit_is_noticed() -> None:
    content = state.dumps(used_forecaster())
    for position in range(len(content)):
        for bit in (0, 5, 7):
            damaged = bytearray(content)
            damaged[position] ^= 1 << bit
            with pytest.raises(SnapshotError):
                state.loads(bytes(damaged))


def test_every_truncation_is_noticed() -> None:
    content = state.dumps(used_forecaster())
    for length in range(len(content)):
        with pytest.raises(SnapshotError):
            state.loads(content[:length])
    with pytest.raises(SnapshotError):
        state.loads(content + b"\0")


def test_what_is_no_snapshot_says_so(tmp_path: Path) -> None:
    for junk in (b"", b"hello", b"\x80\x04K\x07.", os.urandom(300), b"{}" * 50):
        with pytest.raises(SnapshotError, match=r"not a snapshot of treecal|damaged"):
            state.loads(junk)
    from safetensors.numpy import save

    with pytest.raises(SnapshotError, match="not a snapshot of treecal"):
        state.loads(save({"x": np.zeros(3)}))


def test_a_newer_version_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "VERSION", 7)
    content = state.dumps(used_forecaster())
    monkeypatch.undo()
    with pytest.raises(SnapshotError, match=r"(?s)format version 7, and this treecal reads version 2.*upgrade treecal"):
        state.loads(content)


OLD = sorted((Path(__file__).parent / "data/snapshots-0.1.0").iterdir())


@pytest.mark.parametrize("path", OLD, ids=lambda path: path.stem)
def test_snapshots_of_0_1_0_say_what_to_do(path: Path) -> None:
    """Whatever was in them: state has another shape now."""
    with pytest.raises(SnapshotError, match=r"(?s)format version 1, and this .* reads version 2.*replay the outcomes"):
        tc.load(path)


def test_a_crash_while_writing_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, f = tmp_path / "f.treecal", used_forecaster()
    tc.save(f, path)
    before = path.read_bytes()
    f.update([1, 0, 0])

    def fails(*_: Any) -> None:
        raise OSError("disk full")

    for step in ("fsync", "replace"):
        with monkeypatch.context() as patch:
            patch.setattr(os, step, fails)
            with pytest.raises(OSError, match="disk full"):
                tc.save(f, path)
        assert path.read_bytes() == before
        assert [entry.name for entry in tmp_path.iterdir()] == ["f.treecal"]
    tc.save(f, path)
    assert tc.load(path).rounds == f.rounds


@pytest.mark.skipif(os.name != "posix", reason="modes are of POSIX")
def test_a_file_that_is_replaced_keeps_its_mode_and_a_new_one_gets_the_usual(tmp_path: Path) -> None:
    path, usual = tmp_path / "f.treecal", tmp_path / "usual"
    for umask in (0o022, 0o077, 0o002):
        before = os.umask(umask)
        try:
            tc.save(used_forecaster(), path)
            usual.touch()
        finally:
            os.umask(before)
        assert stat.S_IMODE(path.stat().st_mode) == stat.S_IMODE(usual.stat().st_mode) == 0o666 & ~umask
        for mode in (0o640, 0o600, 0o444):
            path.chmod(mode)
            tc.save(used_forecaster(), path)
            assert stat.S_IMODE(path.stat().st_mode) == mode
        path.unlink()
        usual.unlink()


class Disc(tc.ConvexSet):
    dim, centre = 2, np.zeros(2)

    def contains(self, points: Any, *, tol: float = 1e-9) -> Any:
        return tc.l2(points) <= 1 + tol


def test_a_set_of_the_users_own_comes_back_by_hand() -> None:
    disc = Disc()
    f = tc.TreeCal(disc, arity=2)
    f.update([0.6, 0.0])
    content = state.dumps(f)
    with pytest.raises(SnapshotError, match="of the class Disc, which is not part of treecal"):
        state.loads(content)
    assert state.loads(content, space=disc).predict() == f.predict()


def test_a_class_of_the_users_own_is_not_written() -> None:
    class Mine(tc.TreeCal):
        pass

    with pytest.raises(SnapshotError, match="Mine cannot be saved"):
        state.dumps(Mine(tc.Simplex(2)))


def test_nothing_is_pickled() -> None:
    content = state.dumps(used_forecaster())
    assert b"pickle" not in content
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    assert set(header) == {"__metadata__", "rounds", "sums"}
    assert header["sums"]["dtype"] == "F64"


def test_a_class_that_is_not_imported_is_refused_by_name() -> None:
    """A registered forecaster is known only where its module is imported."""
    registry = tc.forecasters.REGISTRY

    class Elsewhere(tc.RunningMean):
        name = "elsewhere"

    try:
        content = state.dumps(Elsewhere(tc.Simplex(2)))
    finally:
        del registry["elsewhere"]
    with pytest.raises(SnapshotError, match=r"the class Elsewhere.*\n\nHint: import the module"):
        state.loads(content)


def test_arguments_of_another_version_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    f = tc.RunningMean(tc.Simplex(2))
    monkeypatch.setattr(f, "arguments", lambda: {"space": f.space, "window": 3})
    with pytest.raises(SnapshotError, match=r"RunningMean is not one of this version: .*'window'"):
        state.loads(state.dumps(f))


@pytest.mark.parametrize("thing", [3, tc.Simplex(2), "TreeCal"])
def test_only_what_has_a_state_is_saved(thing: Any) -> None:
    with pytest.raises(SnapshotError, match="expected a forecaster, corrector, Late, monitor, ledger or bank"):
        state.dumps(thing)


def test_a_set_that_is_not_the_stored_one_is_refused() -> None:
    content = state.dumps(tc.TreeCal(tc.Simplex(classes=["rain", "sun"])))
    with pytest.raises(
        SnapshotError, match=r"set is Simplex\(classes=\['rain', 'sun'\]\), not Simplex\(classes=\['sun'"
    ):
        state.loads(content, space=tc.Simplex(classes=["sun", "rain"]))


@pytest.mark.parametrize("make", [lambda: tc.Ledger(tc.Simplex(2)), lambda: tc.Bank(tc.Simplex(2), streams=1)])
def test_copies_share_nothing(make: Any) -> None:
    thing = make()
    again = copy.copy(thing)
    if isinstance(thing, tc.Ledger):
        again.record([0.5, 0.5], [1, 0])
    else:
        again.update([0], [0])
    assert state.dumps(thing) == state.dumps(make()) != state.dumps(again)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(FileError, match=r"there is no file .*nowhere"):
        tc.load(tmp_path / "nowhere")
