"""Writes `cluster/rpc/*_pb2.py` and `.pyi` from `proto/replog/v1/*.proto`; `--check` only compares.

Service stubs are not generated: `cluster/rpc/methods.py` reads the services from the descriptors. The output of protoc
depends on its version alone, and the lock file pins that.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from importlib.resources import files
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROTO = ROOT / "proto"
OUTPUT = ROOT / "cluster" / "rpc"
# protoc derives the import from the path of the .proto file, which names the protocol's package, not this one.
_IMPORT = re.compile(r"from replog\.v1 import (\w+_pb2)")
_SUFFIXES = ("_pb2.py", "_pb2.pyi")


def generate() -> dict[str, str]:
    """Generates the text of each file, by file name. Raises RuntimeError when protoc refuses a .proto file."""
    from grpc_tools import protoc

    sources = sorted(str(path.relative_to(PROTO)) for path in (PROTO / "replog" / "v1").glob("*.proto"))
    assert sources, PROTO
    with tempfile.TemporaryDirectory() as directory:
        well_known = str(files("grpc_tools") / "_proto")
        arguments = ["protoc", f"-I{PROTO}", f"-I{well_known}"]
        arguments += [f"--python_out={directory}", f"--pyi_out={directory}", *sources]
        if protoc.main(arguments) != 0:
            raise RuntimeError("protoc refused a file of proto/")
        generated = sorted(Path(directory, "replog", "v1").iterdir())
        return {path.name: _IMPORT.sub(r"from cluster.rpc import \1", path.read_text()) for path in generated}


def checked_in() -> dict[str, str]:
    return {path.name: path.read_text() for path in sorted(OUTPUT.iterdir()) if path.name.endswith(_SUFFIXES)}


def differences() -> list[str]:
    """Returns the names of the files that are missing, superfluous or different."""
    fresh, present = generate(), checked_in()
    return sorted(name for name in fresh.keys() | present.keys() if fresh.get(name) != present.get(name))


def write() -> None:
    """Writes the generated files and deletes those that no .proto file makes any more."""
    fresh = generate()
    for name in checked_in().keys() - fresh.keys():
        (OUTPUT / name).unlink()
    for name, text in fresh.items():
        (OUTPUT / name).write_text(text)


def main() -> int:
    """Writes or, with `--check`, compares; returns the exit status: 1 if anything differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if anything differs")
    if not parser.parse_args().check:
        write()
        return 0
    stale = differences()
    for name in stale:
        print(f"cluster/rpc/{name} differs from proto/: run `make generate`", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
