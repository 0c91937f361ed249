"""A standalone Spark cluster on 127.0.0.1, from pyspark's own jars, and what has to be shipped to it.

    python -m tests.keyed.cluster SCRIPT ARGUMENTS…

starts one, with two workers of one core each, runs a script on it by `spark-submit`, and stops it. A script that sends
SIGUSR1 to the process `$CLUSTER` loses a worker, and one that sends SIGUSR2 gets another.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import site
import subprocess
import sys
import tarfile
import tempfile
import time
import venv
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyspark

ROOT = Path(__file__).parents[2]
HOME = Path(pyspark.__file__).parent
SETTINGS = {
    "spark.driver.memory": "1g",
    "spark.executor.cores": "1",
    "spark.executor.memory": "1g",
    "spark.log.level": "ERROR",
    "spark.shuffle.readHostLocalDisk": "false",  # workers are to be as far apart as machines
    "spark.sql.shuffle.partitions": "4",
}


def wheel(folder: Path) -> Path:
    """Build the package's wheel, and return it under a name that `--py-files` takes: a wheel is a zip file."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (built,) = folder.glob("*.whl")
    return built.rename(folder / "treecal.zip")


def environment(folder: Path, package: Path | None = None) -> Path:
    """Make an environment that finds what treecal needs in this Python, and treecal itself only if it is given."""
    venv.create(folder, symlinks=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    # A path file adds folders and not the path files in them: an editable treecal there stays out of reach.
    (packages / "needs.pth").write_text("\n".join(site.getsitepackages()))
    if package is not None:
        with zipfile.ZipFile(package) as archive:
            archive.extractall(packages)
    return folder


def archive(folder: Path) -> Path:
    """Pack an environment as `venv-pack` does, to be unpacked on the executors."""
    packed = folder.with_suffix(".tar.gz")
    with tarfile.open(packed, "w:gz", compresslevel=1) as file:
        file.add(folder, arcname=".")
    return packed


class Cluster:
    """A master and workers of one core each, every one with a process group and a folder for shuffles of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.workers = folder, list[subprocess.Popen[bytes]]()
        folder.mkdir(parents=True, exist_ok=True)
        self._env = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "SPARK_", "PYSPARK_"))}
        self._env |= {"SPARK_HOME": str(HOME), "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_DAEMON_MEMORY": "256m"}
        self._daemons = list[subprocess.Popen[bytes]]()
        self._master = self._start("master.Master", "--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
        self.address = self._wait_for(r"spark://127\.0\.0\.1:\d+", 1)

    def add_worker(self) -> None:
        """Start a worker, and wait until the master knows it."""
        number = len(self.workers)
        home = self._home(number)
        options = ("--host", "127.0.0.1", "--webui-port", "0", "--cores", "1", "--memory", "1g", "--work-dir", home)
        self.workers.append(self._start("worker.Worker", *options, self.address, SPARK_LOCAL_DIRS=f"{home}/local"))
        self._wait_for("Registering worker", number + 1)

    def kill_worker(self, number: int) -> None:
        """Kill a worker with its executors, and remove what they have shuffled, as if the machine were lost."""
        os.killpg(self.workers[number].pid, signal.SIGKILL)
        self.workers[number].wait()
        shutil.rmtree(f"{self._home(number)}/local")

    def submit(self, *words: str, python: str, settings: dict[str, str] | None = None, **options: Any) -> Any:
        """Start a driver by `spark-submit`; return its process."""
        command = [str(HOME / "bin" / "spark-submit"), "--master", self.address]
        for key, value in (SETTINGS | (settings or {})).items():
            command += ["--conf", f"{key}={value}"]
        env = self._env | {"PYSPARK_PYTHON": python, "PYSPARK_DRIVER_PYTHON": options.pop("driver", python)}
        env |= {"CLUSTER": str(os.getpid())}
        return subprocess.Popen([*command, *words], env=env, cwd=self.folder, start_new_session=True, **options)

    def run(self, python: str, *words: str) -> str:
        """Run a Python that is a driver by itself, without `spark-submit`; return what it prints."""
        set_ = " ".join(f"--conf {key}={value}" for key, value in SETTINGS.items())
        env = self._env | {"PYSPARK_PYTHON": python, "PYSPARK_SUBMIT_ARGS": f"{set_} pyspark-shell"}
        done = subprocess.run([python, *words], env=env, cwd=self.folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def stop(self) -> None:
        """Kill every process of the cluster."""
        for daemon in reversed(self._daemons):
            if daemon.poll() is None:
                os.killpg(daemon.pid, signal.SIGKILL)
                daemon.wait()

    def _home(self, number: int) -> str:
        return str(self.folder / f"worker-{number}")

    def _start(self, name: str, *options: str, **env: str) -> subprocess.Popen[bytes]:
        command = [str(HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}", *options]
        with (self.folder / f"{len(self._daemons)}.log").open("wb") as log:
            daemon = subprocess.Popen(
                command, env=self._env | env, cwd=self.folder, stdout=log, stderr=log, start_new_session=True
            )
        self._daemons.append(daemon)
        return daemon

    def _wait_for(self, pattern: str, count: int) -> str:
        """Wait until the master's log has so many matches; return the last."""
        log, end = self.folder / "0.log", time.monotonic() + 120
        while len(found := re.findall(pattern, log.read_text())) < count:
            if self._daemons[-1].poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"the cluster does not start: see {log}\n{log.read_text()[-2000:]}")
            time.sleep(0.1)
        return str(found[-1])


@contextmanager
def cluster(folder: Path, *, workers: int = 2) -> Iterator[Cluster]:
    """Return a cluster that runs, and stop it in the end."""
    found = Cluster(folder)
    try:
        for _ in range(workers):
            found.add_worker()
        yield found
    finally:
        found.stop()


def main() -> int:
    with tempfile.TemporaryDirectory() as name, cluster(Path(name) / "cluster") as found:
        needs, package = environment(Path(name) / "needs"), wheel(Path(name))
        signal.signal(signal.SIGUSR1, lambda *_: found.kill_worker(len(found.workers) - 1))
        signal.signal(signal.SIGUSR2, lambda *_: found.add_worker())
        words = ("--py-files", str(package), os.path.abspath(sys.argv[1]), *sys.argv[2:])  # its folder is another
        driver = found.submit(*words, python=str(needs / "bin" / "python"))
        return int(driver.wait())


if __name__ == "__main__":
    raise SystemExit(main())
