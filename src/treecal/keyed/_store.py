"""The store of epochs: a directory of Parquet for each finished one, and a manifest that commits it.

An epoch's data are written under a unique name. The manifest appears when they are complete, in one rename; without it
they do not count. So an epoch is finished or not, wherever a process was killed, and earlier ones stay.
"""

from __future__ import annotations

import json
from contextlib import closing
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from treecal.exceptions import SnapshotError
from treecal.keyed._tables import FORMAT, OTHER_FORMAT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Store:
    """The epochs under a path that Spark can write to: a folder, HDFS, or an object store."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        hadoop: Any = spark._jvm
        self._path = hadoop.org.apache.hadoop.fs.Path
        root = self._path(str(path))
        self._files = root.getFileSystem(spark._jsc.hadoopConfiguration())
        self.path = str(self._files.makeQualified(root).toString())

    def finished(self) -> list[int]:
        """Return the epochs that are finished, in order."""
        folder = self._path(f"{self.path}/manifests")
        if not self._files.exists(folder):
            return []
        names = [str(status.getPath().getName()) for status in self._files.listStatus(folder)]
        return sorted(int(name.removesuffix(".json")) for name in names if name.endswith(".json"))

    def manifest(self, epoch: int) -> dict[str, Any]:
        """Return the manifest of a finished epoch."""
        with closing(self._files.open(self._path(self._manifest(epoch)))) as stream:
            content = json.loads(bytes(stream.readAllBytes()))
        if content["format"] != FORMAT:
            raise SnapshotError(
                f"epoch {epoch} in {self.path} has format {content['format']}, and this treecal reads {FORMAT}.",
                hint=OTHER_FORMAT,
            )
        return dict(content)

    def data(self, epoch: int) -> str:
        """Return the directory of a finished epoch's data."""
        return f"{self.path}/{self.manifest(epoch)['data']}"

    def fresh(self, epoch: int) -> str:
        """Return a new name for an epoch's data, relative to the store."""
        return f"data/{epoch:020d}/{uuid4().hex}"

    def commit(self, epoch: int, data: str, content: dict[str, Any]) -> None:
        """Write the manifest, which finishes the epoch, and remove what killed attempts have left."""
        target = self._path(self._manifest(epoch))
        draft = self._path(f"{self.path}/manifests/.{uuid4().hex}")
        with closing(self._files.create(draft)) as stream:
            stream.write(json.dumps({"format": FORMAT, "epoch": epoch, "data": data, **content}, indent=1).encode())
        if self._files.exists(target) or not self._files.rename(draft, target):
            raise SnapshotError(f"epoch {epoch} in {self.path} has meanwhile been finished by another driver.")
        for attempt in self._files.listStatus(self._path(f"{self.path}/{data}").getParent()):
            if str(attempt.getPath().getName()) != data.rpartition("/")[2]:
                self._files.delete(attempt.getPath(), True)

    def _manifest(self, epoch: int) -> str:
        return f"{self.path}/manifests/{epoch:020d}.json"
