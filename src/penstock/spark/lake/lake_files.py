"""The files of a lake, wherever Spark can write them: a folder of this machine, HDFS, an object store.

Everything goes through the file systems that Spark itself uses, with its settings and credentials.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Any, NamedTuple

from py4j.protocol import Py4JError  # type: ignore[import-untyped]

from penstock.errors import InvalidInput, PenstockError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Files", "FoundFile"]

# How many folders are measured at a time.
_THREADS = 8


class FoundFile(NamedTuple):
    """A file: where, and how long."""

    path: str
    size: int


class Files:
    """The files under one path."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        try:
            jvm: Any = spark._jvm
            configuration = spark._jsc.hadoopConfiguration()
        except Exception:
            raise PenstockError(
                "the lake is reached through Spark's own file systems, which Spark Connect does not give access to; "
                "run this on a plain session"
            ) from None
        self._jvm = jvm
        default = str(configuration.get("fs.defaultFS") or "file:///")
        # Spark's process keeps the folder it was started in; a relative path means the one Python is in now.
        if "://" not in path and not path.startswith("file:") and default.startswith("file:"):
            path = Path(path).absolute().as_uri()
        try:
            root = jvm.org.apache.hadoop.fs.Path(path)
            self._system = root.getFileSystem(configuration)
            self.root: str = self._system.makeQualified(root).toString().rstrip("/")
        except Exception as error:
            raise InvalidInput("lake", f"{path!r:.200} cannot be opened: {_first_line(error)}") from None

    def path(self, relative: str) -> str:
        """The whole path of something in the lake."""
        return f"{self.root}/{relative}"

    def list_names(self, relative: str) -> list[str]:
        """What lies in a folder; nothing where there is none."""
        folder = self._path(relative)
        with self._explain_errors(relative):
            if not self._system.exists(folder):
                return []
            return sorted(status.getPath().getName() for status in self._system.listStatus(folder))

    def list_files(self, relative: str) -> list[FoundFile]:
        """All files below a folder."""
        found = []
        with self._explain_errors(relative):
            waiting = self._system.listFiles(self._path(relative), True)
            while waiting.hasNext():
                status = waiting.next()
                found.append(FoundFile(status.getPath().toString().removeprefix(f"{self.root}/"), int(status.getLen())))
        return found

    def exists(self, relative: str) -> bool:
        """Whether there is such a file or folder."""
        with self._explain_errors(relative):
            return bool(self._system.exists(self._path(relative)))

    def measure_sizes(self, relative: Sequence[str]) -> list[int | None]:
        """The bytes of all files below each of these folders; None of one that is not there."""

        def size(folder: str) -> int | None:
            if not self.exists(folder):
                return None
            with self._explain_errors(folder):
                return int(self._system.getContentSummary(self._path(folder)).getLength())

        with ThreadPoolExecutor(_THREADS, "penstock-lake") as threads:
            return list(threads.map(size, relative))

    def read(self, relative: str) -> str:
        """A small file's text."""
        with self._explain_errors(relative):
            stream = self._system.open(self._path(relative))
            try:
                return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
            finally:
                stream.close()

    def commit(self, relative: str, text: str) -> None:
        """Write a file that is there whole or not at all. One that is there already stays."""
        final, draft = self._path(relative), self._path(f"{relative}.{token_hex(4)}.draft")
        with self._explain_errors(relative):
            if self._system.exists(final):
                return
            stream = self._system.create(draft, True)
            try:
                stream.write(text.encode())
            finally:
                stream.close()
            if not self._system.rename(draft, final) and not self._system.exists(final):
                raise PenstockError(f"{self.path(relative)} could not be written; run the archive again")

    def remove(self, relative: str) -> None:
        """Remove a file, or a folder with all that is in it."""
        with self._explain_errors(relative):
            self._system.delete(self._path(relative), True)

    @contextmanager
    def _explain_errors(self, relative: str) -> Iterator[None]:
        try:
            yield
        except Py4JError as error:
            raise PenstockError(
                f"{self.path(relative)} of the lake cannot be read or written: {_first_line(error)}; see that this "
                "session may use it and that it is whole"
            ) from None

    def _path(self, relative: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(self.path(relative))


def _first_line(error: Exception) -> str:
    lines = str(getattr(error, "java_exception", error)).strip().splitlines()
    return lines[0][:300] if lines else type(error).__name__
