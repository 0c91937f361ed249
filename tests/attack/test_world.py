"""The world outside: caches that are damaged, targets that are no files, signals, terminals and closed streams."""

from __future__ import annotations

import importlib.util
import io
import json
import logging
import os
import random
import signal
import socket
import stat
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import treecal as tc
from tests.cli.support import TREECAL, heed_interrupts, refused, run as command
from treecal import _atomic, _platform, swap
from treecal.cli import main
from treecal.exceptions import FileError, TreeCalError
from treecal.io import new_file

posix = pytest.mark.skipif(os.name != "posix", reason="of POSIX")


# Numba's cache.


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], Any]:
    """Return what compiles one small function as a new process would, with a cache in the folder `cache`."""
    numba = pytest.importorskip("numba")
    from treecal import _compile

    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(numba.config, "CACHE_LOCATOR_CLASSES", "UserProvidedCacheLocator")
    source = tmp_path / "small.py"
    source.write_text("def double(x):\n    return 2 * x\n")

    def compiled() -> Any:
        _compile._log.cache_clear()
        spec = importlib.util.spec_from_file_location("small", source)
        assert spec is not None
        assert spec.loader is not None
        spec.loader.exec_module(module := importlib.util.module_from_spec(spec))
        return _compile.strict(module.double)

    return compiled


def cached(folder: Path, ending: str) -> list[Path]:
    return sorted(folder.glob(f"cache/**/*.{ending}"))


def test_without_a_folder_for_the_cache_kernels_are_compiled_without_one(
    kernel: Callable[[], Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "cache").write_text("a file, so that there can be no folder")
    assert kernel()(3) == 6
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "NUMBA_CACHE_DIR" in caplog.text


@pytest.mark.parametrize("ending", ["nbi", "nbc"])
@pytest.mark.parametrize("content", [b"", b"garbage", b"\x80\x05", None], ids=["empty", "garbage", "pickle", "cut"])
def test_a_damaged_cache_is_written_anew(
    kernel: Callable[[], Any], tmp_path: Path, ending: str, content: bytes | None, caplog: pytest.LogCaptureFixture
) -> None:
    assert kernel()(3) == 6
    for path in cached(tmp_path, ending):
        path.write_bytes(path.read_bytes()[:-10] if content is None else content)
    assert (again := kernel())(3) == 6
    assert not again.dispatcher.stats.cache_hits
    assert "damaged" in caplog.text
    caplog.clear()
    assert (healed := kernel())(3) == 6
    assert sum(healed.dispatcher.stats.cache_hits.values()) == 1
    assert not caplog.records


def test_a_cache_that_cannot_be_written_later_is_left_alone(
    kernel: Callable[[], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from numba.core.caching import IndexDataCacheFile

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(IndexDataCacheFile, "_save_index", full)
    assert kernel()(3) == 6
    assert "cannot be written" in caplog.text


@pytest.mark.attack
def test_banks_and_audits_work_with_any_cache(tmp_path: Path) -> None:
    script = (
        "import numpy as np, treecal as tc\n"
        "bank = tc.Bank(tc.Simplex(2), streams=2); bank.update([0, 1], np.eye(2)); bank.predict()\n"
        "tc.audit({'p': np.full(8, 0.75), 'y': np.arange(8) % 2}, forecast='p', outcome='y')\n"
        "tc.replay(np.arange(8) % 2, tc.Simplex(2)).error('l1')\n"
    )
    (tmp_path / "file").touch()
    for folder, damage in (("file/no", False), ("cache", False), ("cache", True), ("cache", False)):
        for path in cached(tmp_path, "nb?") if damage else ():
            path.write_bytes(b"garbage")
        env = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / folder)}
        env |= {"NUMBA_CACHE_LOCATOR_CLASSES": "UserProvidedCacheLocator"}
        done = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        said = [line for line in done.stderr.splitlines() if "is compiling" not in line]  # as it may say if it is slow
        assert len(said) == (folder != "cache" or damage), done.stderr


# Saving.


def forecaster(rounds: int = 1) -> tc.TreeCal:
    f = tc.TreeCal(tc.Simplex(2))
    for _ in range(rounds):
        f.update([1, 0])
    return f


@posix
def test_what_is_no_file_is_not_replaced(tmp_path: Path) -> None:
    pipe, door, link, folder = (tmp_path / name for name in ("pipe", "door", "link", "folder"))
    os.mkfifo(pipe)
    folder.mkdir()
    with socket.socket(socket.AF_UNIX) as server:
        here = os.open(".", os.O_RDONLY)
        try:
            os.chdir(tmp_path)  # a socket's name is short
            server.bind("door")
        finally:
            os.fchdir(here)
            os.close(here)
        link.symlink_to(pipe)
        for target, kind in (
            (pipe, "a pipe"), (door, "a socket"), (link, "a pipe"), (folder, "a folder"), (Path(os.devnull), "a device")
        ):  # fmt: skip
            before = target.stat().st_mode, target.stat().st_ino
            with pytest.raises(FileError, match=f"is {kind}, expected a file"):
                tc.save(forecaster(), target)
            with pytest.raises(FileError, match=kind), new_file(target, force=True):
                pytest.fail("the block should not run")
            refused(command("forecast", "--dim", 2, "--snapshot", target), kind)
            assert (target.stat().st_mode, target.stat().st_ino) == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["door", "folder", "link", "pipe"]


@posix
def test_a_device_node_survives_force(tmp_path: Path) -> None:
    node, log = tmp_path / "null", tmp_path / "log.csv"
    try:
        os.mknod(node, 0o666 | stat.S_IFCHR, os.makedev(1, 3))
    except PermissionError:
        pytest.skip("only root makes devices")
    log.write_text("p,y\n0.25,0\n0.75,1\n")
    for option in ("--output", "--invalid-rows"):
        words = ("--on-error", "collect") if option == "--invalid-rows" else ()
        refused(command("audit", log, "--forecast", "p", "--outcome", "y", option, node, "--force", *words), "a device")
    refused(command("replay", log, "--outcome", "y", "--csv", node, "--force"), "a device")
    assert stat.S_ISCHR(node.stat().st_mode)


@posix
def test_links_are_followed(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    real, link, dangling = tmp_path / "there" / "run42", tmp_path / "latest", tmp_path / "next"
    link.symlink_to("there/run42")
    dangling.symlink_to("there/run43")
    for path in (real, link, dangling):
        tc.save(forecaster(3), path)
    assert link.is_symlink()
    assert dangling.is_symlink()
    assert tc.load(real).rounds == tc.load(tmp_path / "there" / "run43").rounds == 3
    with pytest.raises(FileError, match="exists"), new_file(link):
        pytest.fail("the block should not run")


@posix
@pytest.mark.parametrize("length", [1, 245, 246, 255])
def test_names_of_any_length(tmp_path: Path, length: int) -> None:
    path = tmp_path / ("n" * length)
    tc.save(forecaster(), path)
    tc.save(forecaster(2), path)
    assert tc.load(path).rounds == 2


def killed_writer(path: Path) -> None:
    """Begin to write a file in another process, and kill it."""
    script = (
        "import os, sys\nfrom treecal._atomic import new_file\n"
        "with new_file(sys.argv[1], force=True) as t:\n    t.write_text('half'); os.kill(os.getpid(), 9)\n"
    )
    done = subprocess.run([sys.executable, "-c", script, str(path)], check=False)
    assert done.returncode == -signal.SIGKILL


@posix
def test_what_a_killed_writer_left_is_removed_and_a_living_one_keeps_its_own(tmp_path: Path) -> None:
    path = tmp_path / "f.treecal"
    killed_writer(path)
    assert len(list(tmp_path.iterdir())) == 1
    with new_file(tmp_path / "other") as temporary:
        temporary.write_text("slow")
        _atomic._swept.clear()
        tc.save(forecaster(), path)
        assert temporary.exists()
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["f.treecal", "other"]


@posix
def test_a_file_that_is_swept_before_it_is_locked_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process takes the new file for an orphan, and locks it first."""
    lock = _platform.lock
    sweepers: list[tuple[Path, int]] = []

    def too_late(held: int) -> bool | None:
        if not sweepers:
            (unfinished,) = tmp_path.iterdir()
            sweepers.append((unfinished, os.open(unfinished, os.O_RDONLY)))
            assert lock(sweepers[0][1])
        return lock(held)

    monkeypatch.setattr(_atomic, "lock", too_late)
    with new_file(tmp_path / "f") as temporary:
        unfinished, held = sweepers[0]
        unfinished.unlink()
        os.close(held)
        temporary.write_text("whole")
    assert (tmp_path / "f").read_text() == "whole"


@posix
def test_what_exists_by_the_end_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "a"
    monkeypatch.setattr(_atomic, "_checked", lambda path, force: None)  # as if it came between the check and the end

    def write() -> None:
        with new_file(target) as temporary:
            temporary.write_text("ours")
            target.write_text("theirs")

    with pytest.raises(FileError, match="exists"):
        write()
    assert target.read_text() == "theirs"


_WRITER = """
import sys, treecal as tc
from treecal import _atomic, _platform, swap
f = tc.TreeCal(tc.Simplex(2))
for _ in range(100_000):
    f.update([1, 0]); _atomic._swept.clear(); tc.save(f, sys.argv[1])
"""


@pytest.mark.attack
@posix
def test_writers_side_by_side_and_killed(tmp_path: Path, attack_seed: int, attack_seconds: float) -> None:
    """Four processes save to one path and sweep each time; now and then one is killed. The file is always whole."""
    draw, path, counts = random.Random(attack_seed), tmp_path / "f.treecal", Counter[str]()
    tc.save(forecaster(), path)
    writers = [subprocess.Popen([sys.executable, "-c", _WRITER, str(path)]) for _ in range(4)]
    end = time.monotonic() + min(attack_seconds, 60)
    try:
        while time.monotonic() < end and counts["kills"] < 40:
            for _ in range(20):
                assert tc.load(path).rounds >= 1
                counts["loads"] += 1
            time.sleep(draw.random())
            victim = draw.randrange(4)
            assert writers[victim].poll() is None, "a writer failed"
            writers[victim].kill()
            writers[victim].wait()
            writers[victim] = subprocess.Popen([sys.executable, "-c", _WRITER, str(path)])
            counts["kills"] += 1
    finally:
        for writer in writers:
            writer.kill()
            writer.wait()
    _atomic._swept.clear()
    tc.save(forecaster(), path)
    print(f"\nwriters, seed {attack_seed}: {dict(counts)}")
    assert [entry.name for entry in tmp_path.iterdir()] == ["f.treecal"]


# Signals.


def signalled(count: int, seed: int, folder: Path, *, seconds: float = 600.0) -> Counter[str]:
    """Interrupt audits at random moments, and return how each ended."""
    draw, counts, end = random.Random(seed), Counter[str](), time.monotonic() + seconds
    log, spill = folder / "log.parquet", folder / "tmp"
    spill.mkdir()
    rows, rng = 4_000_000, np.random.default_rng(0)
    p, y, g = (rng.integers(size, size=rows) for size in (1001, 2, 50))
    pq.write_table(pa.table({"p": p / 1000, "y": y, "g": g}), log)
    words = [TREECAL, "audit", str(log), "--forecast", "p", "--outcome", "y", "--by", "g", "--json", "--force"]
    words += ["--output", str(spill / "bins.csv")]  # its unfinished file tells that the command has begun
    answer = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    for i in range(count):
        if time.monotonic() > end:
            break
        number = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)[i % 3]
        pipe, env = subprocess.PIPE, os.environ | {"TMPDIR": str(spill)}
        audit = subprocess.Popen(words, stdout=pipe, stderr=pipe, text=True, env=env, preexec_fn=heed_interrupts)
        while audit.poll() is None and not list(spill.glob("*.part")):
            time.sleep(0.01)
        time.sleep(draw.uniform(0, 2.5))
        audit.send_signal(number)
        try:
            out, err = audit.communicate(timeout=120)
        except subprocess.TimeoutExpired:
            audit.kill()
            out, err = audit.communicate()
        counts["tried"] += 1
        if audit.returncode == 130 and err == "treecal: interrupted.\n" and answer.startswith(out):
            counts["stopped"] += 1  # perhaps while it printed the answer
        elif audit.returncode == 0 and out == answer and not err:
            counts["had ended"] += 1
        else:
            print("FAILED", number, audit.returncode, out[:100], err[-2000:])
            counts["failures"] += 1
        (spill / "bins.csv").unlink(missing_ok=True)
        if left := list(spill.iterdir()):
            print("LEFT", number, left)
            counts["failures"] += 1
    return counts


@pytest.mark.heavy
@posix
def test_signals(tmp_path: Path) -> None:
    counts = signalled(2, 1, tmp_path)
    assert counts["failures"] == 0, counts
    assert counts["stopped"] >= 1, counts


@pytest.mark.attack
@posix
def test_a_hundred_signals(tmp_path: Path, attack_seed: int, attack_seconds: float) -> None:
    counts = signalled(100, attack_seed, tmp_path, seconds=attack_seconds)
    print(f"\nsignals, seed {attack_seed}: {dict(counts)}")
    assert counts["failures"] == 0


@posix
def test_an_interrupt_that_a_library_discards_leaves_no_traceback() -> None:
    script = (
        "import ctypes, os, signal, sys\n"
        "from treecal import cli\n"
        "from treecal.cli import _app\n"
        "def discards(arguments):\n"
        "    kill = lambda: os.kill(os.getpid(), signal.SIGTERM)\n"
        "    ctypes.CFUNCTYPE(None)(kill)()\n"  # as llvmlite calls back
        "    try:\n"
        "        cli._signals.interrupts.check()\n"
        "    except KeyboardInterrupt as error:\n"
        "        sys.excepthook(type(error), error, None)\n"  # as PyErr_Print does
        "    return run(arguments)\n"
        "run, _app.run = _app.run, discards\n"
        "sys.argv = ['treecal', 'plan', '--dim', '2', '--rounds', '9']\n"
        "cli.main()\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "treecal: interrupted.\n")


# Terminals and streams.


def test_no_escape_reaches_the_terminal(tmp_path: Path) -> None:
    evil = "\x1b[31m\x9b2Jx"
    log, keys = tmp_path / f"{evil}.csv", tmp_path / f"{evil}.jsonl"
    log.write_text(f"p,y,{evil}\n0.25,{evil},{evil}\n0.75,sun,b\n")
    keys.write_text(json.dumps({evil: 1, "y": evil}) + "\n", "utf-8")
    two = ("--forecast", "p", "--outcome", "y")
    for words in (
        (evil,),
        ("audit", tmp_path / f"no{evil}.csv", *two),
        ("audit", log, *two),
        ("audit", log, *two, "--by", evil),
        ("audit", log, *two, "--by", evil, "--json"),
        ("audit", log, *two, "--classes", "rain,sun", "--on-error", "collect", "--invalid-rows", tmp_path / "r.csv"),
        ("audit", log, *two, "--classes", "rain,sun"),
        ("audit", log, "--forecast", "q", "--outcome", "y"),
        ("audit", log, *two, "--output", tmp_path / evil / "x"),
        ("replay", log, "--outcome", "y"),
        ("replay", log, "--outcome", "y", "--json"),
        ("replay", keys, "--outcome", "z"),
        ("recalibrate", keys, "--dim", "2"),
        ("forecast", keys, "--classes", "rain,sun", "--outcome", "y"),
        ("forecast", "--dim", "2", "--snapshot", tmp_path / evil / "s"),
        ("game", evil),
        ("plan", "--norm", evil, "--dim", "2", "--rounds", "9"),
    ):
        done = command(*words)
        shown = done.out + done.err
        assert all(c.isprintable() or c == "\n" for c in shown), (words, shown)
        assert "unexpected" not in shown, (words, shown)
        if "--json" in words and done.code == 0:
            assert evil in json.loads(done.out)["classes"]


def ended(*words: str, **streams: Any) -> int:
    """Run the command with other standard streams, None for one that is closed, and return its exit code."""
    with pytest.MonkeyPatch.context() as patch:
        for name, stream in streams.items():
            patch.setattr(sys, name, stream)
        with pytest.raises(SystemExit) as end:
            main([*words])
        for name, stream in streams.items():
            if stream is None and getattr(sys, name) is not None:
                getattr(sys, name).close()
    return int(end.value.code or 0)


def test_closed_streams(capsys: pytest.CaptureFixture[str]) -> None:
    assert ended("forecast", "--dim", "2", stdin=None) == 0
    assert json.loads(capsys.readouterr().out)["round"] == 1
    assert ended("plan", "--dim", "2", "--rounds", "9", stdout=None) == 2
    assert "standard output is closed" in capsys.readouterr().err
    assert ended("plan", stderr=None) == 2


@pytest.mark.parametrize("encoding", ["cp1252", "ascii", "utf-8"])
def test_letters_that_standard_output_lacks(encoding: str) -> None:
    for words, is_json in (
        (("forecast", "--classes", "sün,→,€"), True),
        (("audit", "log", "--forecast", "p"), False),
        (("plan", "--dim", "3", "--rounds", "9"), False),
        (("recommend", "--dim", "2", "--rounds", "9"), False),
    ):
        out = io.TextIOWrapper(io.BytesIO(), encoding)
        assert ended(*words, stdout=out, stdin=io.TextIOWrapper(io.BytesIO(b""), encoding="utf-8")) in (0, 2)
        out.seek(0)
        if is_json:
            assert list(json.loads(out.read())["mean"]) == ["sün", "→", "€"]


def test_an_error_that_is_none_of_ours_is_a_sentence_and_with_debug_a_traceback(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Panic(BaseException):
        """As libraries in Rust raise."""

    for error in (ZeroDivisionError("a\nb"), RecursionError(), SystemError("c"), Panic("d"), UnicodeError("\x1b")):

        def fails(*_: object, raised: BaseException = error, **__: object) -> None:
            raise raised

        monkeypatch.setattr("treecal.cli._plan.find", fails)
        done = command("plan", "--dim", 2, "--rounds", 9)
        refused(done, "an unexpected error", type(error).__name__, "--debug")
        assert "Traceback" in command("plan", "--dim", 2, "--rounds", 9, "--debug").err


# What was absurd and took for ever, or raised whatever the library beneath raised.


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: tc.plan(None, "l1", rounds=10), "space is None, expected a ConvexSet"),  # type: ignore[arg-type]
        (lambda: tc.plan(3, "l1", error=0.1), "space is 3, expected a ConvexSet"),  # type: ignore[arg-type]
        (lambda: tc.recommend(None, "l1", rounds=10), "space is None"),  # type: ignore[arg-type]
        (lambda: tc.certificate(tc.Simplex(2), "l1", rounds=9, arity=8, depth=100_000), "depth is 100000, expected at"),
        (lambda: tc.certificate(tc.Simplex(2), "l1", rounds=10**30, arity=8, depth=10**6), "expected at most 100"),
        (lambda: tc.TreeCal(tc.Simplex(2), depth=100_000), "depth is 100000, expected at most 21"),
        (lambda: tc.TreeCal(tc.Simplex(2), depth=10**30), "expected at most 21"),
        (lambda: tc.AdaptiveTreeCal(tc.Simplex(2), depth=64), "depth is 64, expected at most 31"),
        (lambda: swap.TreeSwap(lambda: swap.Hedge(2), arity=4, depth=100_000), "expected at most 31"),
        (lambda: swap.TreeSwap(lambda: swap.Hedge(2), arity=10**30), "expected less than"),
        (lambda: tc.audit({"p": [0.5]}, forecast="p", outcome="p", bins=10**30), "expected at most 1,000,000"),
        (lambda: tc.Simplex(10**30), "dim is 10+, expected at most"),
        (lambda: tc.Ledger(tc.Simplex(2)).record([[0.5], [0.5, 0.5]], [0, 1]), "not a vector"),
        (lambda: tc.Ledger(tc.Simplex(2)).record([0.5, 0.5], [[0], [1, 2]]), "not a vector"),
    ],
)
def test_the_absurd_is_refused(call: Callable[[], object], message: str) -> None:
    with pytest.raises(TreeCalError, match=message):
        call()


def test_the_best_tree_is_one_that_can_be_made() -> None:
    for rounds in (2**40, 2**62, 2**63):
        best = tc.plan(tc.Simplex(2), "l1", rounds=rounds)
        made = tc.TreeCal(tc.Simplex(2), arity=best.arity, depth=best.depth)
        certificate = made.certificate("l1", rounds=rounds)
        assert certificate is not None
        assert certificate.bound == best.bound


def test_payoffs_beyond_floats_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "large.nfg"
    path.write_text('NFG 1 R "x" { "a" "b" } { 2 2 }\n\n1e400 1 2 3 4 5 6 7\n')
    refused(command("game", path), "too large for a float")


def test_cells_as_narrow_as_can_be_numbered() -> None:
    corrector = tc.Recalibrator(tc.Simplex(2), groups=tc.correctors.Cells(width=1e-150))
    corrector.predict([0.3, 0.7])
    corrector.update([1, 0])
    with pytest.raises(tc.TreeCalError, match="width is 1e-300, expected at least"):
        tc.correctors.Cells(width=1e-300)


def test_no_processes_are_refused() -> None:
    refused(command("arena", "--workers", 0), "--workers is 0, expected an integer of 1 or more")


def test_messages_name_options() -> None:
    refused(command("forecast", "--dim", 2, "--forecaster", "treecal", "--depth", 64), "a tree without a depth grows")
    assert "memory_limit" not in command("audit", __file__, "--forecast", "p", "--outcome", "y", "--memory", "x").err
