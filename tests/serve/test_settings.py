"""Settings by the command line, by variables and by a file: each of them by each way, in this order, or a good word."""

from __future__ import annotations

import re
import stat
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.cli.support import refused, run
from tests.serve.receiver import SECRET
from treecal.cli._serve import serve as command
from treecal.exceptions import TreeCalError
from treecal.serve import Settings, read_settings
from treecal.serve._webhooks import receivers_of

FIELDS = [field.name for field in msgspec.structs.fields(Settings)]
VALUES: dict[str, tuple[Any, str]] = {
    "data": ("b.sqlite", "b.sqlite"),
    "host": ("::1", "::1"),
    "port": (81, "81"),
    "allow_host": (["a.org", "b.org"], "a.org, b.org"),
    "rate": (2.5, "2.5"),
    "body": (9, "9"),
    "keep": (90, "90"),
    "demo": (True, "true"),
    "log_level": ("error", "error"),
}
"""As the file has them, and as a variable has them."""


def test_every_setting_has_an_option_a_variable_and_a_key() -> None:
    table = re.findall(r"^\| `--([\w-]+)` \| `(\w+)` \| `(\w+)` \|", REFERENCE.read_text("utf-8"), re.M)
    options = [*command.__annotations__.keys() - {"return", "config"}]
    assert sorted(key for _, _, key in table) == sorted(options) == sorted(VALUES) == sorted({*FIELDS} - {"webhooks"})
    for option, variable, key in table:
        assert option == key.replace("_", "-")
        assert variable == f"TREECAL_SERVE_{key.upper()}"


REFERENCE = Path(__file__).parents[2] / "docs" / "reference" / "serve.md"


@pytest.mark.parametrize("name", VALUES)
def test_the_command_line_comes_before_the_environment_and_that_before_the_file(name: str, tmp_path: Path) -> None:
    value, text = VALUES[name]
    usual = getattr(Settings(), name)
    file = tmp_path / "serve.toml"
    file.write_text(f"{name} = {msgspec.json.encode(value).decode()}\n")
    variables = {f"TREECAL_SERVE_{name.upper()}": text, "TREECAL_SERVED": "?", "PATH": "/"}
    assert value != usual
    assert getattr(read_settings({}, {}), name) == usual
    assert getattr(read_settings({}, {}, file), name) == value
    assert getattr(read_settings({}, {"TREECAL_SERVE_CONFIG": str(file)}), name) == value
    assert getattr(read_settings({}, variables), name) == value
    assert getattr(read_settings({}, {f"TREECAL_SERVE_{name.upper()}": ""}, file), name) == value
    file.write_text(f"{name} = {msgspec.json.encode(usual).decode()}\n" if usual is not None else "")
    assert getattr(read_settings({}, variables, file), name) == value
    other = usual if usual is not None else "other.sqlite" if name == "data" else 7
    assert getattr(read_settings({name: other}, variables, file), name) == other


def test_the_command_takes_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[Settings, str]] = []
    monkeypatch.setattr("treecal.serve._run.serve", lambda settings, data, say: seen.append((settings, data)))
    file = tmp_path / "serve.toml"
    file.write_text('data = "file.sqlite"\nrate = 7\n')
    monkeypatch.setenv("TREECAL_SERVE_RATE", "8")
    monkeypatch.setenv("TREECAL_SERVE_PORT", "82")
    assert run("serve", "--config", file, "--port", "83", "--allow-host", "a.org", "--allow-host", "b.org").code == 0
    ((settings, data),) = seen
    assert (data, settings.rate, settings.port, settings.allow_host) == ("file.sqlite", 8, 83, ["a.org", "b.org"])


@pytest.mark.parametrize(
    ("options", "variables", "file", "words"),
    [
        ({}, {"TREECAL_SERVE_PROT": "1"}, "", ("TREECAL_SERVE_PROT", "TREECAL_SERVE_PORT?")),
        ({}, {"TREECAL_SERVE_XYZZY": "1"}, "", ("TREECAL_SERVE_XYZZY", "TREECAL_SERVE_ALLOW_HOST")),
        ({}, {"TREECAL_SERVE_PORT": "many"}, "", ("TREECAL_SERVE_PORT is 'many'", "a whole number")),
        ({}, {"TREECAL_SERVE_DEMO": "perhaps"}, "", ("TREECAL_SERVE_DEMO is 'perhaps'",)),
        ({}, {}, "prot = 1", ("'prot'", "port?")),
        ({}, {}, "xyzzy = 1", ("'xyzzy'", "log_level")),
        ({}, {}, 'port = "81"', ("port in ", "'81'", "a whole number")),
        ({}, {}, "port = 70000", ("port in ", "70000", "<= 65535")),
        ({}, {}, 'log_level = "loud"', ("log_level in ", "'loud'", "error, info, warning")),
        ({}, {}, "port =", ("is not TOML",)),
        ({}, {}, f"port = {'[' * 5000}{']' * 5000}", ("is not TOML",)),
        ({"port": 70000}, {}, "", ("--port is 70000",)),
        ({"rate": 0}, {}, "", ("--rate is 0",)),
        ({"body": 0}, {}, "", ("--body is 0",)),
        ({}, {}, '[webhooks.oncall]\nsecret = "x"', ("webhook oncall has no url", "TREECAL_SERVE_WEBHOOKS_ONCALL_URL")),
        ({}, {}, '[webhooks.oncall]\nurl = "https://a.org"', ("webhook oncall has no secret",)),
        ({}, {}, '[webhooks.oncall]\nurll = "x"', ("webhooks in ", "'urll'", "url, secret, streams")),
        ({}, {}, '[webhooks."On Call"]\nurl = "x"', ("'On Call' is no name of a webhook", "small letters")),
        ({"data": "postgresql://me:pw@db/books"}, {}, "", ("password", "PGPASSWORD", "TREECAL_SERVE_DATA")),
        ({"data": "postgresql://db/books?user=me&password=pw"}, {}, "", ("password", "~/.pgpass")),
    ],
)
def test_what_is_wrong_is_named_with_where_it_is(
    options: dict[str, Any], variables: dict[str, str], file: str, words: tuple[str, ...], tmp_path: Path
) -> None:
    path = tmp_path / "serve.toml"
    path.write_text(file)
    with pytest.raises(TreeCalError) as caught:
        read_settings(options, variables, path)
    for each in words:
        assert each in str(caught.value)
    assert ":pw@" not in str(caught.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    refused(run("serve", "--config", tmp_path / "none.toml"), "there is no file", "none.toml")
    refused(run("serve", "--data", "postgresql://me:pw@db/books"), "password", "PGPASSWORD")


def test_a_webhooks_secret_may_be_in_the_environment_and_the_rest_in_the_file(tmp_path: Path) -> None:
    file = tmp_path / "serve.toml"
    file.write_text('[webhooks.on-call]\nurl = "https://example.org/x"\nstreams = ["shop-*", "rain"]\n')
    (found,) = receivers_of(read_settings({}, {"TREECAL_SERVE_WEBHOOKS_ON_CALL_SECRET": SECRET}, file).webhooks)
    assert (found.name, found.url, found.secrets) == ("on-call", "https://example.org/x", (SECRET,))
    assert found.streams == ("shop-*", "rain")
    variables = {
        "TREECAL_SERVE_WEBHOOKS_A_URL": "https://example.org/a,b",
        "TREECAL_SERVE_WEBHOOKS_A_SECRET": f"{SECRET},{SECRET}",
        "TREECAL_SERVE_WEBHOOKS_A_STREAMS": "x, y",
    }
    (other,) = receivers_of(read_settings({}, variables).webhooks)
    assert (other.url, other.secrets, other.streams) == ("https://example.org/a,b", (SECRET, SECRET), ("x", "y"))


@pytest.mark.parametrize("address", ["mysql://x/y", "sqlite:///books.sqlite", "http://127.0.0.1:8000"])
def test_books_are_in_a_file_or_in_postgresql(address: str) -> None:
    for words in (("serve",), ("token", "list"), ("doctor",), ("backup", "out.sqlite")):
        done = run(*words, "--data", address)
        refused(done, "in a file of SQLite or in PostgreSQL", "--data books.sqlite")
        assert "/x" not in done.err


def test_the_example_in_the_docs_is_read(tmp_path: Path) -> None:
    page = REFERENCE.parents[1] / "howto" / "serve.md"
    (text,) = re.findall(r"^```toml\n(.*?)^```$", page.read_text("utf-8"), re.M | re.S)
    file = tmp_path / "serve.toml"
    file.write_text(text)
    file.chmod(stat.S_IRUSR)
    assert set(msgspec.toml.decode(text)) == set(FIELDS) - {"demo"}
    assert read_settings({}, {"TREECAL_SERVE_WEBHOOKS_ONCALL_SECRET": SECRET}, file).webhooks
