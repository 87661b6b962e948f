"""Puts the libraries of `build/compiled` into the wheel, if REPLOG_COMPILED is set. hatchling runs it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SWITCH = "REPLOG_COMPILED"


class CompiledWheel(BuildHookInterface[Any]):
    """Makes the wheel one of this platform and this version of Python. Without the switch the wheel stays pure."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add each library under the place of its module. Raises FileNotFoundError if nothing is compiled."""
        if version == "editable" or not os.environ.get(SWITCH):
            return
        built = Path(self.root, "build", "compiled")
        libraries = sorted(built.rglob("*.so"))
        if not libraries:
            raise FileNotFoundError(f"no compiled module is in {built}: run `make compiled`")
        build_data["pure_python"], build_data["infer_tag"] = False, True
        build_data["force_include"] |= {str(path): str(path.relative_to(built)) for path in libraries}
