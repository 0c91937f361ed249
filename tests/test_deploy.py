"""The files in deploy/: they say what the command line takes, and, where the programs are installed, they work."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import socket
import ssl
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml  # type: ignore[import-untyped]

from tests.cli.support import run
from tests.serve.http import fill, served
from tests.serve.test_process import process
from treecal.cli._app import app
from treecal.cli._terminal import Exit

ROOT = Path(__file__).parents[1]
DEPLOY = ROOT / "deploy"
NAME = "forecasts.example.org"


def taken(words: list[str]) -> dict[str, Any]:
    """Return the arguments that the command line makes of words, or raise."""
    _, bound, *_ = app.parse_args(words, exit_on_error=False, print_error=False)
    return dict(bound.arguments)


# The image


def instructions() -> list[tuple[str, str]]:
    """Return the instructions of the Dockerfile."""
    text = re.sub(r"^#.*\n", "", (DEPLOY / "Dockerfile").read_text("utf-8"), flags=re.M)
    lines = [line for line in re.sub(r"\\\n\s*", "", text).splitlines() if line]
    return [(line.partition(" ")[0], line.partition(" ")[2]) for line in lines]


def final(instruction: str) -> list[str]:
    found = instructions()
    start = max(i for i, (word, _) in enumerate(found) if word == "FROM")
    return [rest for word, rest in found[start:] if word == instruction]


def test_the_image_runs_the_server_as_a_user_of_its_own() -> None:
    assert all(
        re.fullmatch(r"python:3\.\d+-slim-\w+( AS build)?", rest) for word, rest in instructions() if word == "FROM"
    )
    (user,), (entry,), (command,) = final("USER"), final("ENTRYPOINT"), final("CMD")
    assert int(user) > 0
    assert json.loads(entry) == ["treecal"]
    given = taken(json.loads(command))
    (volumes,) = final("VOLUME")
    assert str(Path(given["data"]).parent) in json.loads(volumes)
    assert f"{given.get('port', 8000)}" == final("EXPOSE")[0]


def test_the_health_of_the_image_is_that_of_the_server(tmp_path: Path) -> None:
    (check,) = final("HEALTHCHECK")
    _, flag, code = json.loads(check.partition("CMD ")[2])
    assert flag == "-c"
    with process("--data", tmp_path / "books.sqlite") as (_, port):
        command = [sys.executable, "-c", code.replace("8000", str(port))]
        assert subprocess.run(command, timeout=60, check=False).returncode == 0
    assert subprocess.run(command, timeout=60, check=False, capture_output=True).returncode == 1


def test_the_image_is_made_of_files_that_are_there_and_packages_by_hash(tmp_path: Path) -> None:
    found = instructions()
    copies = [rest.split() for word, rest in found if word == "COPY" and not rest.startswith("--from")]
    assert all((ROOT / source).exists() for *sources, _ in copies for source in sources)
    steps = " && ".join(rest for word, rest in found if word == "RUN")
    for install in re.findall(r"pip install ([^&]*)", steps):
        assert "--require-hashes" in install or "--no-deps" in install
    code = re.search(r'python -c "([^"]*)"', steps)
    assert code is not None
    needs = subprocess.check_output([sys.executable, "-c", code[1]], text=True, cwd=ROOT).splitlines()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = project["optional-dependencies"]
    assert needs == [*project["dependencies"], *extras["serve"], *extras["postgres"]]


# The unit


def unit() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in (DEPLOY / "treecal.service").read_text("utf-8").splitlines():
        if line and line[0] not in "#[":
            name, _, value = line.partition("=")
            found.setdefault(name, []).append(value)
    return found


def test_the_unit_starts_the_server_and_writes_where_it_may() -> None:
    found = unit()
    program, *words = shlex.split(found["ExecStart"][0])
    assert program.endswith("/treecal")
    assert taken(words)["data"].startswith(f"/var/lib/{found['StateDirectory'][0]}/")
    assert found["Environment"] == [f"NUMBA_CACHE_DIR=/var/cache/{found['CacheDirectory'][0]}"]
    assert found["RestartPreventExitStatus"] == [str(int(Exit.REFUSED))]  # and not Exit.LATER
    assert found["StartLimitIntervalSec"] == ["0"]
    assert "MemoryDenyWriteExecute" not in found


def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    text = (DEPLOY / "treecal.service").read_text("utf-8")
    here = tmp_path / "treecal.service"
    here.write_text(text.replace("/opt/treecal/bin/treecal", shutil.which("true") or "/bin/true"))
    done = subprocess.run(["systemd-analyze", "verify", here], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    rated = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", here], capture_output=True, text=True, check=False
    )
    score = re.search(r"Overall exposure level for treecal\.service: ([\d.]+)", rated.stdout)
    if score is not None:  # older ones rate only units that are loaded
        assert float(score[1]) <= 1.5


# The proxies


@contextmanager
def certificate(folder: Path) -> Iterator[tuple[Path, Path]]:
    """A certificate for the name of the server, signed by itself."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    key, file = folder / "key.pem", folder / "certificate.pem"
    options = ["-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={NAME}"]
    names = ["-addext", f"subjectAltName=DNS:{NAME}"]
    command = ["openssl", "req", *options, *names, "-keyout", str(key), "-out", str(file)]
    subprocess.run(command, check=True, capture_output=True)
    yield file, key


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


class Outside:
    """One who asks for the server by its name, over TLS."""

    def __init__(self, port: int, certificate: Path) -> None:
        self.port, self._context = port, ssl.create_default_context(cafile=str(certificate))

    def line(self) -> ssl.SSLSocket:
        plain = socket.create_connection(("127.0.0.1", self.port), timeout=30)
        return self._context.wrap_socket(plain, server_hostname=NAME)

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, bytes]:
        content = b"" if body is None else json.dumps(body).encode()
        given = {"Host": f"{NAME}:{self.port}", "Connection": "close", "Content-Length": str(len(content))}
        given |= {name.replace("_", "-"): value for name, value in headers.items()}
        if body is not None:
            given["Content-Type"] = "application/json"
        head = "".join(f"{name}: {value}\r\n" for name, value in given.items())
        with self.line() as line:
            line.sendall(f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode() + content)
            answer = b""
            while part := line.recv(65536):
                answer += part
        return int(answer.split()[1]), answer.partition(b"\r\n\r\n")[2]


@contextmanager
def nginx(folder: Path, upstream: int) -> Iterator[Outside]:
    program = shutil.which("nginx") or shutil.which("/usr/sbin/nginx")
    if program is None:
        pytest.skip("nginx is not installed (Debian: nginx-light)")
    port, other = free_port(), free_port()
    with certificate(folder) as (file, key):
        text = (DEPLOY / "nginx.conf").read_text("utf-8")
        for old, new in (
            ("127.0.0.1:8000", f"127.0.0.1:{upstream}"),
            ("listen 443", f"listen 127.0.0.1:{port}"),
            ("listen 80", f"listen 127.0.0.1:{other}"),
            (f"/etc/ssl/{NAME}.pem", str(file)),
            (f"/etc/ssl/private/{NAME}.key", str(key)),
        ):
            assert old in text
            text = text.replace(old, new)
        temporary = "".join(
            f"{kind}_temp_path {folder}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        )
        config = folder / "nginx.conf"
        config.write_text(
            f"daemon off; user root; pid {folder}/pid; error_log {folder}/errors;\n"
            f"events {{}}\nhttp {{ access_log off; {temporary}\n{text}\n}}\n"
        )
        subprocess.run([program, "-t", "-c", config], check=True, capture_output=True)
        with child([program, "-c", str(config)], port):
            yield Outside(port, file)


@contextmanager
def caddy(folder: Path, upstream: int) -> Iterator[Outside]:
    program = shutil.which("caddy")
    if program is None:
        pytest.skip("caddy is not installed")
    port, other = free_port(), free_port()
    with certificate(folder) as (file, key):
        text = (DEPLOY / "Caddyfile").read_text("utf-8")
        site = f"{NAME} {{\n"
        assert site in text
        text = text.replace(site, f"{NAME}:{port} {{\n\ttls {file} {key}\n\tbind 127.0.0.1\n")
        text = text.replace("127.0.0.1:8000", f"127.0.0.1:{upstream}")
        config = folder / "Caddyfile"
        config.write_text(
            f"{{\n\tadmin off\n\tgrace_period 1s\n\thttp_port {other}\n\tstorage file_system {folder}\n}}\n{text}"
        )
        with child([program, "run", "--config", str(config), "--adapter", "caddyfile"], port):
            yield Outside(port, file)


@contextmanager
def child(command: list[str], port: int) -> Iterator[None]:
    """Run a program until the block ends, and wait until it listens."""
    started = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(600):
            assert started.poll() is None
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                break
            except OSError:
                subprocess.run(["sleep", "0.05"], check=True)
        yield
    finally:
        started.terminate()
        started.wait(30)


@pytest.mark.heavy
@pytest.mark.parametrize("proxy", [nginx, caddy])
def test_the_server_behind_a_proxy_with_tls(proxy: Any, tmp_path: Path) -> None:
    data = tmp_path / "books.sqlite"
    with process("--data", data, "--allow-host", NAME) as (_, port), proxy(tmp_path, port) as outside:
        assert outside.ask("GET", "/healthz")[0] == 200
        assert outside.ask("GET", "/v1/streams")[0] == 403  # open to this machine, and this comes from elsewhere
        scopes = ("read", "admin", "forecast", "outcome")
        made = run("token", "create", "me", "--data", data, *(f"--scope={scope}" for scope in scopes))
        bearer = {"Authorization": f"Bearer {made.out.strip()}"}
        for _ in range(100):  # the server follows within a second or two
            if outside.ask("GET", "/v1/streams")[0] == 401:
                break
            subprocess.run(["sleep", "0.1"], check=True)
        origin = {"Origin": f"https://{NAME}:{outside.port}", "Sec-Fetch-Site": "same-origin"}
        new = {"name": "rain", "classes": ["no", "yes"]}
        assert outside.ask("POST", "/v1/streams", new, **bearer, **origin)[0] == 201
        assert outside.ask("POST", "/v1/streams", new, **bearer, Origin="https://elsewhere.example.org")[0] == 403
        status, page = outside.ask("GET", "/")
        assert (status, b"<html" in page) == (200, True)
        with outside.line() as line:
            head = f"GET /v1/events HTTP/1.1\r\nHost: {NAME}:{outside.port}\r\nAuthorization: {bearer['Authorization']}"
            line.sendall(f"{head}\r\n\r\n".encode())
            heard = line.recv(65536)
            forecast = {"id": "a", "p": [0.5, 0.5]}
            assert outside.ask("POST", "/v1/streams/rain/forecasts", forecast, **bearer)[0] == 200
            while b"event: forecast" not in heard:  # it comes while the connection stays open
                part = line.recv(65536)
                assert part
                heard += part
        assert outside.ask("POST", "/v1/outcomes", "x" * 9_000_000, **bearer)[0] == 413


# Compose, Prometheus and Grafana


def queries() -> list[str]:
    """Return every query of the dashboard and of the rules."""
    dashboard = json.loads((DEPLOY / "grafana/treecal.json").read_text("utf-8"))
    rules = yaml.safe_load((DEPLOY / "alerts.yml").read_text("utf-8"))
    shown = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    return shown + [rule["expr"] for group in rules["groups"] for rule in group["rules"]]


def test_compose_starts_the_server_as_the_command_line_takes_it() -> None:
    compose = yaml.safe_load((DEPLOY / "compose.yml").read_text("utf-8"))
    services = compose["services"]
    given = taken(services["treecal"]["command"])
    assert given["data"] == "postgresql://treecal@postgres/treecal"
    assert all(port.startswith("127.0.0.1:") for each in services.values() for port in each.get("ports", ()))
    mounted = [volume.split(":")[0] for each in services.values() for volume in each["volumes"]]
    files = [name for name in mounted if name.startswith("./") and name != "./prometheus.token"]
    assert files
    assert [name for name in files if not (DEPLOY / name).is_file()] == []
    assert {name for name in mounted if not name.startswith("./")} == set(compose["volumes"])


def test_queries_are_promql_and_ask_for_what_the_server_has(tmp_path: Path) -> None:
    with served(tmp_path) as house:
        fill(house, rounds=3)
        text = house.ask("GET", "/metrics").body.decode()
    offered = set(re.findall(r"^# TYPE (\w+)", text, re.M)) | {"up"}
    labels = set(re.findall(r"(\w+)=\"", text)) | {"job", "webhook"}
    assert len(queries()) > 20
    for query in queries():
        promql_parser.parse(query.replace("$stream", ".*"))
        asked = re.findall(r"\b(treecal_\w+|up)\b", query)
        assert asked
        assert {re.sub(r"_bucket$", "", name) for name in asked} <= offered, query
        assert set(re.findall(r"(\w+)=~?\"", query)) <= labels, query
        for by in re.findall(r"by \(([^)]*)\)", query):
            assert set(by.split(", ")) <= labels, query


def test_prometheus_loads_the_rules() -> None:
    prometheus = yaml.safe_load((DEPLOY / "prometheus.yml").read_text("utf-8"))
    (job,) = prometheus["scrape_configs"]
    assert job["static_configs"] == [{"targets": ["treecal:8000"]}]
    if program := shutil.which("promtool"):
        subprocess.run([program, "check", "rules", DEPLOY / "alerts.yml"], check=True)
