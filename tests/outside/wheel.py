"""A fresh environment with the wheel of this checkout, as a user has it: it sees our dependencies, not the checkout."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
from pathlib import Path
from typing import final

from tests.places import ROOT


def build_wheel(target: Path) -> Path:
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(target), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (built,) = target.glob("*.whl")
    return built


@final
class Installed:
    """A virtual environment in `directory` with the wheel, installed by pip, and links to our dependencies."""

    def __init__(self, wheel: Path, directory: Path) -> None:
        self.directory = directory
        environment = directory / "environment"
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(environment)], check=True)
        (self.site,) = environment.glob("lib/python*/site-packages")
        self.python = environment / "bin" / "python"
        self.replog = environment / "bin" / "replog"
        pip = [sys.executable, "-m", "pip", "--python", str(self.python), "--disable-pip-version-check"]
        options = ["install", "--quiet", "--no-deps", "--no-index", "--no-compile"]
        subprocess.run([*pip, *options, str(wheel)], check=True)
        self._link_dependencies(directory / "dependencies")

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run Python there with these arguments; the directory of the environment is the working directory."""
        command = [str(self.python), "-I", *arguments]
        return subprocess.run(command, capture_output=True, text=True, cwd=self.directory, check=False)

    def copy(self, source: Path) -> Path:
        """Copy a program there, so that nothing beside it in the checkout can be imported."""
        target = self.directory / source.name
        target.write_bytes(source.read_bytes())
        return target

    def _link_dependencies(self, linked: Path) -> None:
        ours = Path(str(importlib.metadata.distribution("simpy").locate_file(""))).resolve()
        linked.mkdir()
        for entry in ours.iterdir():
            if not entry.name.startswith(("replog", "_replog", "__editable__")) and entry.suffix != ".pth":
                (linked / entry.name).symlink_to(entry)
        (self.site / "dependencies.pth").write_text(f"{linked}\n")
