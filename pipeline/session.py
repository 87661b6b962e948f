"""Creates a Spark session with settings that work at once: workers run this interpreter, all traffic is on loopback,
and no progress bars are written.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LEAST_JAVA = 17


class SparkUnavailable(Exception):
    """Spark cannot start here; the message says what to install."""


def java_version() -> int | None:
    """The major version of the Java that Spark would start; None when there is none."""
    home = os.environ.get("JAVA_HOME")
    java = f"{home}/bin/java" if home else shutil.which("java")
    if java is None:
        return None
    try:
        run = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
    except OSError:
        return None
    found = re.search(r'version "(?:1\.)?(\d+)', run.stderr + run.stdout)
    return int(found.group(1)) if found else None


def check_available() -> None:
    """Raise SparkUnavailable, with one line that names what is missing, unless Spark can start here."""
    try:
        import pyarrow  # noqa: F401
        import pyspark  # noqa: F401
    except ImportError as error:
        raise SparkUnavailable(f"{error.name} is not installed: pip install 'replog[spark]'") from error
    version = java_version()
    if version is None or version < LEAST_JAVA:
        found = "no Java" if version is None else f"Java {version}"
        raise SparkUnavailable(
            f"Spark needs Java {LEAST_JAVA} or newer, found {found}: install openjdk-17-jre-headless or set JAVA_HOME"
        )


def session(name: str, *, master: str = "local[*]") -> SparkSession:
    """Create a session with settings that a user would otherwise find one failure at a time.

    Workers run this interpreter: by default they run `python3` of the PATH, which lacks our packages. Filter push-down
    is on: by default it is off, and then a reader that offers it makes queries fail (Spark 4.1). Everything listens
    only on loopback. Raises SparkUnavailable.
    """
    check_available()
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    from pyspark.sql import SparkSession

    settings = {
        "spark.sql.python.filterPushdown.enabled": "true",
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.session.timeZone": "UTC",
        # Failures are raised to the caller; a log would only repeat them.
        "spark.log.level": "OFF",
        "spark.sql.shuffle.partitions": "4",
    }
    builder = SparkSession.builder.appName(name).master(master)
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()
