"""A Spark session as Penstock starts it: once a process, quiet, on this machine unless a master is given.

A user who has a session already needs none of this: every function takes any session.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.errors import PenstockError
from penstock.spark.sessions.stderr_filter import filter_stderr

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["LOCAL_SETTINGS", "OLDEST_JAVA", "ensure_java", "session"]

OLDEST_JAVA = 17

# For every session: no web page, few partitions in a shuffle, times in UTC.
_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "8",
    "spark.sql.session.timeZone": "UTC",
    "spark.python.unix.domain.socket.enabled": "true",
}
# For a session on this machine: its address is not searched for, and Spark logs errors only.
LOCAL_SETTINGS = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile=file:{Path(__file__).with_name('log4j2.properties')}",
}


def session(master: str = "local[*]", **settings: str) -> SparkSession:
    """The session of this process, started where there is none; `settings` are Spark's own, with _ for each dot."""
    ensure_java()
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        raise PenstockError("PySpark is not installed: pip install 'penstock-queue[spark]'") from None
    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    # Executors on this machine run the same Python; a cluster's have their own.
    if master.startswith("local"):
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.appName("penstock").master(master)
    chosen = _SETTINGS | (LOCAL_SETTINGS if master.startswith("local") else {})
    for name, value in (chosen | {name.replace("_", "."): value for name, value in settings.items()}).items():
        builder = builder.config(name, value)
    with filter_stderr() if master.startswith("local") else nullcontext():
        return builder.getOrCreate()


def ensure_java() -> None:
    """Refuse, in one line, where Spark would fail in fifty: without Java, or with one that is too old."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    advice = f"install Java {OLDEST_JAVA} or newer (Debian: apt-get install openjdk-17-jre-headless)"
    if java is None or not Path(java).exists():
        raise PenstockError(f"Spark needs Java and none was found: {advice}, or set JAVA_HOME")
    said = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    found = re.search(r'version "(?:1\.)?(\d+)', said)
    if found is not None and int(found[1]) < OLDEST_JAVA:
        raise PenstockError(f"Spark needs Java {OLDEST_JAVA} or newer, {java} is {found[1]}: {advice}")
