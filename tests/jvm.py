"""The JVMs of the tests live for seconds: they compile little, collect simply, and find their classes in an archive.

`python -m tests.jvm` writes the archive into the virtual environment. A JVM whose Java or Spark is another one than
the archive's looks at it and goes on without.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

__all__ = ["ARCHIVE", "shorten_starts", "started_jvm"]

ARCHIVE = Path(sys.prefix) / "spark-classes.jsa"
_OPTIONS = (
    "-XX:+IgnoreUnrecognizedVMOptions -XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xlog:cds=off -Xlog:cds+dynamic=off"
)


def shorten_starts() -> None:
    """Have every driver that this process and its children start do so."""
    archive = f" -XX:SharedArchiveFile={ARCHIVE}" if ARCHIVE.exists() else ""
    os.environ["SPARK_SUBMIT_OPTS"] = _OPTIONS + archive
    os.environ["SPARK_CONF_DIR"] = str(Path(__file__).parent / "jvm_settings")


@contextmanager
def started_jvm(folder: Path, environment: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """A JVM in which programs can have their Spark session, one after another, as long as the block lasts; what each
    must have in its environment. Whatever Spark starts for them has this folder and this environment.
    """
    from pyspark import SparkConf
    from pyspark.java_gateway import launch_gateway

    from penstock.spark.sessions.start import LOCAL_SETTINGS

    path = os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH"))))
    known = {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1", "PYTHONPATH": path, **environment}
    with patch.dict(os.environ, known):
        settings = SparkConf(loadDefaults=False).setAll(list(LOCAL_SETTINGS.items()))
        launch: Any = launch_gateway
        gateway = launch(settings, {"cwd": folder, "stderr": subprocess.DEVNULL})
    try:
        yield {
            "PYSPARK_GATEWAY_PORT": str(gateway.java_parameters.port),
            "PYSPARK_GATEWAY_SECRET": gateway.java_parameters.auth_token,
        }
    finally:
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait()


def main() -> None:
    """Do a little of what the tests do; at its end the JVM writes down the classes it has loaded."""
    import penstock.spark as ps

    with tempfile.TemporaryDirectory(dir=ARCHIVE.parent) as folder:
        # Whole or not at all: others may start meanwhile.
        draft = Path(folder) / "classes.jsa"
        os.environ["SPARK_SUBMIT_OPTS"] = f"{_OPTIONS} -XX:ArchiveClassesAtExit={draft}"
        spark = ps.session("local[2]", spark_sql_shuffle_partitions="2")
        rows = spark.range(1000).selectExpr("id", "id % 7 as key", "named_struct('n', id) as args")
        rows.write.partitionBy("key").parquet(f"{folder}/rows")
        spark.read.parquet(f"{folder}/rows").groupBy("key").count().join(rows, "key").orderBy("id").toPandas()
        gateway: Any = spark.sparkContext._gateway
        spark.stop()
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait()
        if draft.exists():  # not every Java can
            draft.replace(ARCHIVE)


if __name__ == "__main__":
    main()
