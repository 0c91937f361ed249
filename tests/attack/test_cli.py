"""Random command lines, in this process: an answer or one sentence, and no file changed that was not meant to be."""

from __future__ import annotations

import json
import random
import re
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import treecal as tc
from tests.cli.support import Done, run as command
from treecal.forecasters import REGISTRY

WRITERS = ("--output", "--csv", "--report", "--invalid-rows")
CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]")

Words = list[str]
Draw = random.Random


def files(folder: Path) -> None:
    """Write what commands are given to read, valid and not."""
    rows = [(0.25, 0.75, "rain"), (0.5, 0.5, "sun"), (0.75, 0.25, "rain"), (0.25, 0.75, "sun")] * 3
    (folder / "log.csv").write_text("a,b,y,g\n" + "".join(f"{a},{b},{y},{i % 2}\n" for i, (a, b, y) in enumerate(rows)))
    (folder / "log.tsv").write_text("a\tb\ty\n" + "".join(f"{a}\t{b}\t{y}\n" for a, b, y in rows))
    (folder / "days.csv").write_text("outcome\n" + "rain\nsun\nsnow\n" * 5)
    (folder / "bad.csv").write_text("a,b,y\n0.5,0.5,rain\n0.5\n2,3,4,5,6\nx,,sun\n")
    (folder / "log.jsonl").write_text("".join(json.dumps({"a": a, "b": b, "y": y}) + "\n" for a, b, y in rows))
    (folder / "bad.jsonl").write_text('{"y": "rain"}\n{"y": \n[1, 2]\n"sun"\n' + "[" * 5000 + "\n" + "1" * 5000 + "\n")
    (folder / "numbers.csv").write_text("x,z\n0.5,0.25\n0.25,1e400\nnan,0\n")
    (folder / "escape\x1b[31m.csv").write_text("y,\x9bz\n\x1b[2J,1\nsun,2\n")
    (folder / "empty.csv").write_text("")
    (folder / "binary.csv").write_bytes(bytes(range(256)) * 4)
    (folder / "game.json").write_text("[[[1, 0], [0, 1]], [[0, 1], [1, 0]]]")
    (folder / "bad.json").write_text("[[1, [2]], null]")
    (folder / "large.nfg").write_text('NFG 1 R "x" { "a" "b" } { 2 2 }\n\n1e400 1 2 3 4 5 6 7\n')
    (folder / "notes.txt").write_text("my only copy")
    pq.write_table(pa.table({"a": [0.25, 0.5], "b": [0.75, 0.5], "y": ["rain", "sun"]}), folder / "log.parquet")
    (folder / "cut.parquet").write_bytes((folder / "log.parquet").read_bytes()[:-20])
    tc.save(tc.AdaptiveTreeCal(tc.Simplex(2)), folder / "s.treecal")


def chosen(draw: Draw, likely: Words, odd: Words) -> str:
    return draw.choice(likely if draw.random() < 0.93 else odd)


def options(draw: Draw, table: dict[str, Callable[[Draw], Words]], share: float) -> Words:
    found = [[name, *table[name](draw)] for name in table if draw.random() < share]
    draw.shuffle(found)
    return [word for words in found for word in words]


def one_of(*likely: object, odd: tuple[object, ...] = ()) -> Callable[[Draw], Words]:
    more = [*map(str, odd), "", "-1", "x", "1e400", "nan", str(10**30), "\x1b[31m", "--", "é→", "\udcff"]
    return lambda draw: [chosen(draw, [*map(str, likely)], more)]


SETS: dict[str, Callable[[Draw], Words]] = {
    "--classes": one_of("rain,sun", "rain,snow,sun", odd=("rain", "rain,rain", ",", "\x9b,b", "a" * 300)),
    "--dim": one_of(2, 3, 5, odd=(0, 1, "2.5")),
    "--box": lambda draw: [chosen(draw, ["0", "-1"], ["x", "1e400"]), chosen(draw, ["1", "2"], ["-5", "nan"])],
    "--ball": one_of(1, 0.5, odd=(0, -2)),
}
METHOD: dict[str, Callable[[Draw], Words]] = {
    "--forecaster": one_of(*REGISTRY),
    "--arity": one_of(2, 4, 8, odd=(0, 1)),
    "--depth": one_of(2, 3, 20, odd=(0, 64, 1_000_000)),
    "--mix": one_of(0.1, 0, odd=(1, 2, -0.5)),
    "--bins": one_of(10, 20, odd=(0,)),
    "--resolution": one_of(4, 10, odd=(0,)),
    "--seed": one_of(0, 7),
}
NORM = {"--norm": one_of("l1", "l2", "linf", "l1.5", odd=("l0.5", "lx", "l1,l2", "l"))}
NAMES = ("log.csv", "log.tsv", "days.csv", "log.jsonl", "log.parquet")
ODD = (
    "bad.csv", "bad.jsonl", "numbers.csv", "escape\x1b[31m.csv", "empty.csv", "binary.csv", "cut.parquet", "notes.txt",
    "nowhere.csv", ".", "/dev/null", "nowhere/a.csv", "s.treecal",
)  # fmt: skip
COLUMNS = ("y", "a", "a,b", "outcome", "g", "x,z", "b")
TARGETS = ("new.csv", "new.html", "log.csv", "notes.txt", ".", "nowhere/new.csv", "/dev/null", "\x1b[31mnew.csv")


def source(draw: Draw) -> Words:
    return [chosen(draw, [*NAMES], [*ODD, "-"])]


def target(draw: Draw) -> Words:
    return [draw.choice(TARGETS)]


def usual(draw: Draw) -> Words:
    """Return the options that most files need, more often than not."""
    return ["--classes", "rain,sun", "--outcome", "y"] if draw.random() < 0.6 else []


FLAG: dict[str, Callable[[Draw], Words]] = {"--json": lambda draw: [], "--force": lambda draw: []}
ROWS = {"--on-error": one_of("stop", "skip", "collect"), "--kind": one_of("csv", "jsonl", "parquet")}


def forecast(draw: Draw) -> Words:
    more = {"--outcome": one_of(*COLUMNS), "--announce": one_of("mean", "draw", "distribution")}
    rest = ROWS | {"--every": one_of(1, 5)}
    rest |= {"--snapshot": one_of("s.treecal", "new.treecal", odd=("notes.txt", ".", "/dev/null", "no/s"))}
    words = usual(draw) or options(draw, SETS, 0.3) + options(draw, more, 0.4)
    return ["forecast", *source(draw), *words, *options(draw, METHOD, 0.1), *options(draw, rest, 0.15)]


def replay(draw: Draw) -> Words:
    more = {"--top": one_of(0, 3), "--csv": target, **NORM, **FLAG, "--on-error": ROWS["--on-error"]}
    page = ["--report", *target(draw)] if draw.random() < 0.02 else []  # a report takes a second
    words = usual(draw) or options(draw, SETS, 0.3) + options(draw, METHOD, 0.1)
    return ["replay", *source(draw), *words, *options(draw, more, 0.2), *page]


def audit(draw: Draw) -> Words:
    more = {"--classes": SETS["--classes"], "--by": one_of("g", "y", "a"), "--bins": METHOD["--bins"]}
    more |= {"--tolerance": one_of(1e-6, 0.5, odd=(-1, 0)), "--memory": one_of("1GB", "200MB", odd=("0", "1 parsec"))}
    more |= {"--output": target, "--invalid-rows": target, "--no-exact": lambda draw: [], **NORM, **FLAG}
    more |= {"--on-error": ROWS["--on-error"]}
    given = draw.choice(["a,b", "a,b", "b", *COLUMNS]), draw.choice(["y", "y", "y", *COLUMNS])
    columns = ["--forecast", given[0], "--outcome", given[1]]
    return ["audit", *source(draw), *columns[: draw.choice([2, 4, 4, 4, 4])], *options(draw, more, 0.2)]


def recalibrate(draw: Draw) -> Words:
    more = {"--outcome": one_of("y", *COLUMNS), "--forecast": one_of("a,b", *COLUMNS), **ROWS, "--json": FLAG["--json"]}
    more |= {"--method": one_of("mean", "shift", "adaptive", "platt", "temperature", "vector", "vector-then-mean")}
    more |= {"--groups": one_of("top-class", "cells", "centroids")}
    if words := usual(draw):
        words += ["--forecast", "a,b"]
        more = {name: more[name] for name in ("--method", "--json", "--on-error")}
    return ["recalibrate", *source(draw), *(words or options(draw, SETS, 0.3)), *options(draw, more, 0.3)]


def plan(draw: Draw) -> Words:
    more = {"--rounds": one_of(1, 100, 10**6, odd=(0, 10**20)), "--error": one_of(0.5, 0.1, odd=(0, -1)), **NORM}
    more |= {name: METHOD[name] for name in ("--arity", "--depth")} | {"--json": FLAG["--json"]}
    words = ["--dim", "3", "--rounds", "1000"] if draw.random() < 0.5 else options(draw, SETS, 0.4)
    return ["plan", *words, *options(draw, more, 0.2)]


def recommend(draw: Draw) -> Words:
    more = {"--rounds": one_of(1, 20, odd=(0,)), **NORM, "--json": FLAG["--json"]}
    return ["recommend", "--dim", "2", *options(draw, SETS, 0.1), "--rounds", "10", *options(draw, more, 0.3)]


def arena(draw: Draw) -> Words:
    more = {"--forecasters": one_of("treecal", "running-mean"), "--streams": one_of("i.i.d.", "drift"), **NORM}
    more |= {"--seeds": one_of(1, odd=(0,)), "--folder": one_of("kept", odd=("notes.txt",)), "--json": FLAG["--json"]}
    few = ["--rounds", "5", "--workers", draw.choice(["1", "1", "1", "0"]), "--forecasters", "running-mean"]
    return ["arena", *options(draw, SETS, 0.1), *few, "--streams", "drift", *options(draw, more, 0.2)]


def game(draw: Draw) -> Words:
    more = {"--learner": one_of("treeswap", "hedge", "regret-matching"), "--arity": METHOD["--arity"]}
    more |= {"--rounds": lambda draw: [draw.choice(["1", "20", "0", "-3", "x"])], "--seed": METHOD["--seed"]}
    name = one_of("chicken", "shapley", "game.json", odd=("bad.json", "large.nfg", "no.json", "notes.txt", "."))(draw)
    return ["game", *name, "--rounds", "10", *options(draw, more | {"--json": FLAG["--json"]}, 0.3)]


def junk(draw: Draw) -> Words:
    words = [
        "demo",
        "doctor",
        "forecast",
        "--help",
        "--version",
        "--json",
        "-",
        "\x1b[31m",
        "",
        "nonsense",
        "--",
        "--x",
    ]
    found = [draw.choice(words) for _ in range(draw.randint(1, 4))]
    bad = ["--no-such-option"] if {"demo", "doctor"} & set(found) else []  # without it they work for a minute
    return found + bad


COMMANDS = (forecast, replay, audit, recalibrate, plan, recommend, arena, game, junk)
SHARES = (20, 18, 20, 15, 10, 1, 1, 4, 4)


def problems(words: Words, done: Done, kept: dict[str, bytes], folder: Path) -> Iterator[str]:
    """Yield what must not be."""
    if done.code not in (0, 1, 2):
        yield f"exit code {done.code}"
    if "Traceback" in done.out + done.err or "unexpected error" in done.err:
        yield "an error that is none of ours"
    if done.code == 2 and not done.err.startswith("treecal: "):
        yield "no message"
    if CONTROL.search(done.out + done.err):
        yield "a control character"
    if done.code == 0 and "--json" in words and "--help" not in words and "--version" not in words:
        for line in done.out.splitlines():
            json.loads(line, parse_constant=lambda word: pytest.fail(word))
    may_change = {"s.treecal", "new.treecal", "kept"} | {
        words[i + 1] for i, word in enumerate(words[:-1]) if word in WRITERS and "--force" in words
    }
    for name, content in kept.items():
        path = folder / name
        if name not in may_change and (not path.is_file() or path.read_bytes() != content):
            yield f"{name} has changed"
    yield from (f"{path.name} was left" for path in folder.iterdir() if path.name.endswith(".part"))


@contextmanager
def workplace() -> Iterator[tuple[Path, dict[str, bytes]]]:
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        folder = Path(name)
        files(folder)
        patch.chdir(folder)
        patch.setenv("COLUMNS", "100")
        yield folder, {path.name: path.read_bytes() for path in folder.iterdir()}


def restore(folder: Path, kept: dict[str, bytes]) -> None:
    for path in folder.iterdir():
        if path.name not in kept:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    for name, content in kept.items():
        if not (folder / name).is_file() or (folder / name).read_bytes() != content:
            (folder / name).write_bytes(content)


def run(count: int, seed: int, *, seconds: float = 600.0) -> Counter[str]:
    """Run random commands, and return how many were answered, flawed, refused, and what failed."""
    draw, counts, end = random.Random(seed), Counter[str](), time.monotonic() + seconds
    with workplace() as (folder, kept):
        for _ in range(count):
            if time.monotonic() > end:
                break
            words = draw.choices(COMMANDS, SHARES)[0](draw)
            if draw.random() < 0.03:
                words.insert(draw.randint(0, len(words)), draw.choice(["--force", "--json", "\x00", "--dim", "é"]))
            stdin = draw.choice([b"", b"rain\nsun\n", b"0\n1\n[1, 0]\n", b'{"a": 1}\n', bytes(range(256)), b"1" * 5000])
            counts["tried"] += 1
            begun = time.monotonic()
            try:
                done = command(*words, stdin=stdin)
                failed = list(problems(words, done, kept, folder))
            except BaseException as error:
                failed, done = [f"raised {error!r}"], Done(-1, "", "")
            if failed:
                print("FAILED", words, stdin[:20], failed, done.err[-300:])
                counts["failures"] += 1
            if (took := time.monotonic() - begun) > 5:
                print("SLOW", round(took, 1), words)
            counts[{0: "answered", 1: "flawed", 2: "refused"}.get(done.code, "other")] += 1
            restore(folder, kept)
    return counts


def test_command_lines() -> None:
    counts = run(60, 0)
    assert counts["failures"] == 0, counts
    assert counts["answered"] >= 10
    assert counts["refused"] >= 10


@pytest.mark.attack
def test_ten_thousand_command_lines(attack_seed: int, attack_seconds: float) -> None:
    counts = run(10_000, attack_seed, seconds=attack_seconds)
    print(f"\ncommand lines, seed {attack_seed}: {dict(counts)}")
    assert counts["failures"] == 0
