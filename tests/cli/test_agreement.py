"""Every command reads a file alike: the same rows, the same cells refused, and the same words about them."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import treecal as tc
from tests.cli.support import Done, run
from tests.some import some
from treecal.exceptions import TreeCalError
from treecal.io import Decoder, read_outcomes

HEAD = "day,outcome\n"
SKY = ("--classes", "rain,sun")
TWO = ("--dim", "2")
COLUMNS = ("--forecast", "p_rain,p_sun", "--outcome", "sky")

# By what is special about it: the ending, the content, the options, and how many rows are valid and invalid.
FILES: dict[str, tuple[str, str | bytes, tuple[str, ...], int, int]] = {
    "plain": ("csv", HEAD + "1,sun\n2,rain\n3,sun\n", SKY, 3, 0),
    "blanks around a cell": ("csv", HEAD + "1, sun\n2,rain \n3,  sun  \n", SKY, 3, 0),
    "blanks in the header": ("csv", "day, outcome \n1,sun\n", SKY, 1, 0),
    "quoted": ("csv", HEAD + '1,"sun"\n2,"rain"\n"3, or 4",sun\n', SKY, 3, 0),
    "blanks in and about quotes": ("csv", HEAD + '1, "sun"\n2,"rain" \n3," sun "\n', SKY, 3, 0),
    "line breaks in quotes": ("csv", HEAD + '"1\n2",sun\n3,hail\n"4\n\n5",rain\n', SKY, 2, 1),
    "a quote that never ends": ("csv", HEAD + '1,sun\n2,"rain\n3,sun\n', SKY, 1, 1),
    "text after a quote": ("csv", HEAD + '1,sun\n2,"rain"y\n3,sun\n', SKY, 2, 1),
    "quotes inside": ("csv", HEAD + '1,"5"" of rain"\n2,sun\n', ("--classes", 'sun,"5"" of rain"'), 2, 0),
    "byte order mark": ("csv", b"\xef\xbb\xbf" + (HEAD + "1,sun\n2,rain\n").encode(), SKY, 2, 0),
    "CR LF": ("csv", (HEAD + "1,sun\n\n2,hail\n3,rain\n").replace("\n", "\r\n"), SKY, 2, 1),
    "CR LF and LF": ("csv", HEAD + "1,sun\r\n2,rain\n", SKY, 0, -1),
    "no end of line": ("csv", HEAD + "1,sun\n2,rain", SKY, 2, 0),
    "empty lines": ("csv", HEAD + "1,sun\n\n\n2,hail\n\n3,rain\n\n", SKY, 2, 1),
    "blank lines": ("csv", HEAD + "1,sun\n   \n2,rain\n", SKY, 2, 1),
    "an empty line in an only column": ("csv", "outcome\nsun\n\nrain\n", SKY, 2, 1),
    "short and long rows": ("csv", HEAD + "1\n2,sun\n3,sun,4\n5,rain\n", SKY, 2, 2),
    "missing": ("csv", HEAD + "1,\n2,sun\n3,  \n4," + '""\n', SKY, 1, 3),
    "case and inner blanks count": ("csv", HEAD + "1,Sun\n2,s un\n3,sun\n", SKY, 1, 2),
    "tabs": ("tsv", "day\toutcome\n1\tsun\n2\t rain\n3\thail\n", SKY, 2, 1),
    "semicolons": ("txt", "day;outcome\n1;sun\n2;rain\n", SKY, 2, 0),
    "gzip": ("csv.gz", gzip.compress((HEAD + "1,sun\n2, rain\n").encode()), SKY, 2, 0),
    "half a gzip": ("csv.gz", gzip.compress((HEAD + "1,sun\n2, rain\n" * 99).encode())[:-9], SKY, 0, -1),
    "numbers": ("csv", HEAD + "1,0\n2, 1\n3,2\n4,1.0\n5,01\n", TWO, 2, 3),
    "named numbers": ("csv", HEAD + "1,10\n2,9\n3,0\n", ("--classes", "9,10"), 2, 1),
    "Unicode": ("csv", HEAD + "1,soleil ☀\n2, Föhn\n3,Fohn\n", ("--classes", "Föhn,soleil ☀"), 2, 1),
    "not UTF-8": ("csv", (HEAD + "1,sun\n2,f\xf6n\n3,rain\n").encode("latin-1"), SKY, 2, 1),
    "not UTF-8 in a column that is not read": ("csv", (HEAD + "\xf6,sun\n2,rain\n").encode("latin-1"), SKY, 2, 0),
    "no such column": ("csv", "day,sky\n1,sun\n", SKY, 0, -1),
    "a column asked for is not there": ("csv", "day,sky\n1,sun\n", (*SKY, "--outcome", "skies"), 0, -1),
    "two columns of one name": ("csv", "outcome,outcome\nsun,sun\n", SKY, 0, -1),
    "no header": ("csv", "\n1,sun\n", SKY, 0, -1),
    "JSON lines": ("jsonl", '{"outcome":"sun"}\n\n{"outcome":"rain","day":2}\n{"outcome":"hail"}\n', SKY, 2, 1),
    "JSON: missing": ("ndjson", '{"outcome":"sun"}\n{"outcome":null}\n{"day":1}\n{}\n{"outcome":""}\n', SKY, 1, 4),
    "JSON: blanks are text": ("jsonl", '{"outcome":" sun"}\n{"outcome":"sun"}\n', SKY, 1, 1),
    "JSON: numbers": ("jsonl", '{"outcome":1}\n{"outcome":1.0}\n{"outcome":"0"}\n{"outcome":0.5}\n', TWO, 3, 1),
    "JSON: true": ("jsonl", '{"outcome":true}\n{"outcome":false}\n', TWO, 2, 0),
    "JSON: other kinds": ("jsonl", '{"outcome":"sun"}\n{"outcome":{"a":1}}\n7\n{"outcome":\n', SKY, 1, 3),
    "JSON: Unicode": ("jsonl", '{"outcome":"F\\u00f6hn"}\n{"outcome":"Föhn"}\n', ("--classes", "Föhn,sun"), 2, 0),
    "JSON: bare": ("jsonl", '"sun"\n"hail"\n\n"rain"\n', SKY, 2, 1),
    "JSON: bare numbers": ("jsonl", "1\n0\n2\n1\n", TWO, 3, 1),
    "JSON: words": ("jsonl", '{"outcome":"rain"}\nsun\n', SKY, 1, 1),
    "JSON: lists": ("jsonl", '{"outcome":[0.5,0.5]}\n{"outcome":[1]}\n{"outcome":[1,0.5]}\n', SKY, 1, 2),
    "JSON: lists of other things": ("jsonl", '{"outcome":[0.5,"0.5"]}\n{"outcome":[1,"x"]}\n', SKY, 1, 1),
    "lists in CSV": ("csv", 'outcome\n"[0.5,0.5]"\n"[ 0.25, 0.75 ]"\n"[1]"\n"[1,x]"\n', SKY, 2, 2),
    "vectors": ("csv", "x,y\n0.5, 1\n2,0\n,1\n1e-3,+.5\nnan,0\n0x1,1\n١,1\n", ("--dim", "2", "--box", "0", "1"), 2, 5),
    "a number": ("csv", "x\n0.5\n-3\nx\n", ("--dim", "1", "--ball", "1"), 1, 2),
}  # fmt: skip


def write(folder: Path, ending: str, content: str | bytes) -> Path:
    path = folder / f"days.{ending}"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def mean_outcome(done: Done, command: str) -> tuple[int, Any]:
    """Return how many outcomes were read, and their mean."""
    if command == "forecast":
        last = done.lines[-1]
        mean = last["mean"].values() if isinstance(last["mean"], dict) else last["mean"]
        return last["round"] - 1, list(mean)
    document = json.loads(done.out)
    gaps = [(gap["weight"], gap["outcome"]) for gap in document["gaps"]]
    vectors = [list(y.values()) if isinstance(y, dict) else y for _, y in gaps]
    return document["rounds"], (np.array([w for w, _ in gaps]) @ np.array(vectors) / document["rounds"]).tolist()


@pytest.mark.parametrize("what", some(FILES, every=3))
def test_forecast_and_replay_read_alike(what: str, tmp_path: Path) -> None:
    ending, content, options, valid, invalid = FILES[what]
    path = write(tmp_path, ending, content)
    arguments = [*options, "--forecaster", "running-mean", "--on-error"]
    extra = ["--json", "--top", 1000]
    stream, whole = run("forecast", path, *arguments, "collect"), run("replay", path, *arguments, "collect", *extra)
    assert stream.err == whole.err
    if invalid < 0:
        assert (stream.code, whole.code) == (2, 2)
        return
    assert (stream.code, whole.code) == (int(invalid > 0),) * 2
    assert len(json.loads(whole.out)["invalid_rows"]) == invalid
    (rounds, mean), (counted, averaged) = mean_outcome(stream, "forecast"), mean_outcome(whole, "replay")
    assert rounds == counted == valid
    assert mean == pytest.approx(averaged)
    if invalid:
        stream, whole = run("forecast", path, *arguments, "stop"), run("replay", path, *arguments, "stop", *extra)
        assert (stream.code, whole.code) == (2, 2)
        assert stream.err == whole.err
        assert stream.err.startswith(f"treecal: {path.name}, ")


@pytest.mark.parametrize("what", some([what for what in FILES if FILES[what][0] in ("csv", "tsv")], every=3))
def test_a_pipe_is_read_as_a_file(what: str, tmp_path: Path) -> None:
    ending, content, options, _, _ = FILES[what]
    path = write(tmp_path, ending, content)
    for on_error in ("stop", "collect"):
        file = run("forecast", path, *options, "--on-error", on_error)
        pipe = run("forecast", "-", "--kind", "csv", *options, "--on-error", on_error, stdin=path.read_bytes())
        assert pipe == file._replace(err=file.err.replace(path.name, "standard input"))


LOGS = {
    "blanks": ("csv", "p_rain,p_sun,sky\n0.5, 0.5 ,sun\n 0.25,0.75, rain\n", 2, 0),
    "not a number": ("csv", "p_rain,p_sun,sky\n0.5,0.5,sun\n0.5,x,sun\n", 1, 1),
    "missing": ("csv", "p_rain,p_sun,sky\n0.5,,sun\n0.5,0.5,\n0.5,0.5,rain\n", 1, 2),
    "short": ("csv", "p_rain,p_sun,sky\n0.5,0.5\n0.5,0.5,rain\n0.5,0.5,hail\n", 1, 2),
    "not a probability": ("csv", "p_rain,p_sun,sky\n0.5,0.5,rain\n-0.5,1.5,sun\nnan,1,sun\n", 1, 2),
    "decimal commas": ("csv", "p_rain;p_sun;sky\n0.5;0.5;rain\n0,5;0,5;sun\n", 1, 1),
    "no such column": ("csv", "p_rain,p_sun,weather\n0.5,0.5,rain\n", 0, -1),
    "JSON": ("ndjson", '{"p_rain":0.5,"p_sun":"0.5","sky":"sun"}\n{"p_rain":true,"p_sun":0,"sky":"rain"}\n', 1, 1),
}  # fmt: skip


@pytest.mark.parametrize("what", LOGS)
def test_recalibrate_and_audit_read_alike(what: str, tmp_path: Path) -> None:
    ending, content, valid, invalid = LOGS[what]
    path = write(tmp_path, ending, content)
    stream = run("recalibrate", path, *SKY, *COLUMNS, "--on-error", "skip", "--json")
    whole = run("audit", path, *SKY, *COLUMNS, "--on-error", "skip", "--json")
    assert stream.err == whole.err
    assert stream.code == whole.code == (2 if invalid < 0 else int(invalid > 0))
    if invalid >= 0:
        assert len(stream.lines) - 1 == json.loads(whole.out)["whole"]["rounds"] == valid
    if invalid:
        stop = [run(command, path, *SKY, *COLUMNS) for command in ("recalibrate", "audit")]
        assert stop[0].err == stop[1].err


numbers = st.from_regex(r"\A *[+-]?(\d{0,3}\.?\d{0,3}|nan|inf|infinity|\d_\d|0x1|1d)([eE][+-]?\d{0,3})?[ x]?\Z")


@given(cells=st.lists(st.one_of(numbers, st.text("0159.eE+-_ naif,", max_size=6)), min_size=1, max_size=20))
@settings(max_examples=10, deadline=None)
def test_text_is_a_number_in_bulk_as_in_a_stream(cells: list[str], tmp_path_factory: pytest.TempPathFactory) -> None:
    path, space = tmp_path_factory.mktemp("numbers") / "x.csv", tc.Box(-1e3, 1e3, dim=1)
    cells = ["0.5", *cells]
    path.write_text("x,note\n" + "".join(f'"{cell}",-\n' for cell in cells))
    rows = read_outcomes(path, outcome="x", space=space, on_error="collect")
    bulk = [y for chunk in rows for y in chunk.outcomes[:, 0].tolist()]
    stream, decoder = [], Decoder(space, outcome=["x"])
    for cell in cells:
        try:
            stream.append(float(decoder.outcome({"x": cell.strip(" ") or None})[0]))
        except TreeCalError:
            continue
    assert bulk == stream
    assert rows.problems.count == len(cells) - len(stream)
