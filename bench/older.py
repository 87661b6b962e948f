"""The names that modules had before `storage` had folders, so that rows can be measured on revisions of that time."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Final

_FORMER: Final = {
    "storage.batch.control_batches": "storage.control_batches",
    "storage.disk.os_filesystem": "storage.os_filesystem",
    "storage.producers.rows": "storage.producers.snapshot",
}


def add_former_names() -> None:
    """Make modules that are missing under their present names importable under these, if they have the former ones."""
    for name, former in _FORMER.items():
        try:
            import_module(name)
        except ModuleNotFoundError:
            sys.modules[name] = import_module(former)
