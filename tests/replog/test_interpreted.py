"""The switch that has an installed compiled build use its sources."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from pathlib import Path

from tests.places import ROOT

PROGRAM = "from replog._interpreted import use_sources; use_sources(); import storage.part; print(storage.part.NAME)"


def imported(site: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-S", "-c", PROGRAM]
    return subprocess.run(command, cwd=site, env=environment, capture_output=True, text=True, check=False)


def test_the_switch_prefers_a_source_to_the_library_beside_it(tmp_path: Path) -> None:
    (tmp_path / "replog").mkdir()
    source = ROOT / "replog" / "_interpreted.py"
    (tmp_path / "replog" / "_interpreted.py").write_bytes(source.read_bytes())
    (tmp_path / "storage").mkdir()
    (tmp_path / "storage" / "__init__.py").write_text("")
    (tmp_path / "storage" / "part.py").write_text("NAME = 'source'\n")
    # No library at all: whoever loads it fails.
    (tmp_path / "storage" / f"part{sysconfig.get_config_var('EXT_SUFFIX')}").write_text("")
    assert "ImportError" in imported(tmp_path).stderr
    assert imported(tmp_path, REPLOG_INTERPRETED="1").stdout == "source\n"
