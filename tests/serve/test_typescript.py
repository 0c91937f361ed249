"""The client in TypeScript: its types are the server's, and against a real server it keeps its promises."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.serve.http import served

CLIENT = Path(__file__).parents[2] / "clients/typescript"


def test_its_types_are_written_from_the_server_s_document(tmp_path: Path) -> None:
    with served(tmp_path) as house:
        document = json.dumps(house.ask("GET", "/v1/openapi.json").json)
    written = subprocess.run(
        [sys.executable, CLIENT / "generate.py"], input=document, capture_output=True, text=True, check=True
    )
    assert written.stdout == (CLIENT / "src/api.ts").read_text("utf-8")


@pytest.mark.heavy  # it installs a compiler
@pytest.mark.skipif(shutil.which("npm") is None, reason="npm is not installed")
def test_it_keeps_its_promises(tmp_path: Path) -> None:
    for name in ("src", "test"):
        shutil.copytree(CLIENT / name, tmp_path / name)
    for name in ("package.json", "tsconfig.json"):
        shutil.copy(CLIENT / name, tmp_path)
    env = os.environ | {"TREECAL": str(Path(sys.executable).with_name("treecal"))}
    install = ["npm", "install", "--no-audit", "--no-fund"]
    _run(install, tmp_path, env)
    _run(["npm", "test"], tmp_path, env)
    _run(["npm", "pack"], tmp_path, env)
    version = json.loads((CLIENT / "package.json").read_text("utf-8"))["version"]
    named = f"treecal-{version}.tgz"
    assert named in (CLIENT / "README.md").read_text("utf-8")
    project = tmp_path / "project"
    project.mkdir()
    (project / "package.json").write_text("{}", "utf-8")
    _run([*install, str(tmp_path / named)], project, env)
    script = 'import { Client } from "treecal"; import { fileJournal } from "treecal/node"; new Client("http://a")'
    _run(["node", "--input-type=module", "-e", script], project, env)


def _run(command: list[str], folder: Path, env: dict[str, str]) -> None:
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
