"""Creates a Spark session with settings that work at once: no progress bars are written, and where Spark runs on this
machine, workers run this interpreter and all traffic is on loopback.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LEAST_JAVA = 17
_LOOPBACK = "127.0.0.1"


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


def settings_for(master: str) -> dict[str, str]:
    """Returns Spark's settings. Only a local session listens on loopback: the workers of a cluster call the driver."""
    settings = {
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        # Failures are raised to the caller; a log would only repeat them.
        "spark.log.level": "OFF",
        "spark.sql.shuffle.partitions": "4",
    }
    if _is_local(master):
        settings |= {"spark.driver.host": _LOOPBACK, "spark.driver.bindAddress": _LOOPBACK}
    return settings


def environment_for(master: str, environment: Mapping[str, str]) -> dict[str, str]:
    """Returns the variables to set in `environment`.

    By default workers run `python3` of the PATH, which lacks our packages: local ones run this interpreter. On a
    cluster it may not exist, so there the Python that the user names goes first.
    """
    added = {"PYSPARK_DRIVER_PYTHON": sys.executable}
    if _is_local(master) or "PYSPARK_PYTHON" not in environment:
        added["PYSPARK_PYTHON"] = sys.executable
    if _is_local(master) and "SPARK_LOCAL_IP" not in environment:
        added["SPARK_LOCAL_IP"] = _LOOPBACK
    return added


def _is_local(master: str) -> bool:
    return master.startswith("local")


def session(name: str, *, master: str = "local[*]") -> SparkSession:
    """Create a session with settings that a user would otherwise find one failure at a time.

    Raises SparkUnavailable.
    """
    check_available()
    os.environ |= environment_for(master, os.environ)
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(name).master(master)
    for key, value in settings_for(master).items():
        builder = builder.config(key, value)
    return builder.getOrCreate()
