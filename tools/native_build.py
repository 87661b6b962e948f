"""Makes the compiled replog: mypyc writes C for the modules that are compiled, and the C compiler makes libraries.

Everything is made in `build/native` and only then put into `build/compiled`, which holds the packages as they are and
beside each compiled module its library. The checkout is not touched, and is imported as before: the compiled packages
are used only by a process whose PYTHONPATH names `build/compiled`, or that has their wheel installed.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path
from typing import Any

from native_form import named_tuples, native_form

ROOT = Path(__file__).parent.parent
WORK = ROOT / "build" / "native"
OBJECTS = ROOT / "build" / "objects"
BUILT = ROOT / "build" / "compiled"
PACKAGES = ("cluster", "pipeline", "replog", "scenarios", "sim", "storage")
COMPILED = ("cluster/core", "cluster/shell/streams.py", "cluster/shell/wire", "sim", "storage")
_AROUND = "works before and after runs, not in them"
_BASES = "has bases of interpreted classes"
_RARE = "takes less than a thousandth of a run"
# What of these folders stays interpreted, and why. Package files are left out too: they only pass names on.
LEFT_OUT = {
    "cluster/core/client/admin.py": _RARE,
    "cluster/core/client/descriptions.py": _RARE,
    "cluster/core/client/starts.py": _RARE,
    "cluster/core/controller/elections.py": _RARE,
    "cluster/core/controller/metadata_damage.py": _RARE,
    "cluster/core/controller/snapshot_files.py": _RARE,
    "cluster/core/controller/topics.py": _RARE,
    "cluster/core/errors.py": _BASES,
    "cluster/core/metadata/changes.py": _RARE,
    "cluster/shell/wire/admin.py": _RARE,
    "cluster/shell/wire/metadata.py": _RARE,
    "sim/anomalies": _AROUND,
    "sim/bugs": "replaces methods of other classes, and is there to be replaced",
    "sim/bundled.py": _AROUND,
    "sim/checkers/client_history.py": _RARE,
    "sim/checkers/metadata_replay.py": _RARE,
    "sim/checkers/producer_sequences.py": _RARE,
    "sim/checkers/registry.py": _RARE,
    "sim/commands.py": _AROUND,
    "sim/detection": _AROUND,
    "sim/determinism": _AROUND,
    "sim/faults": _RARE,
    "sim/interruption.py": _AROUND,
    "sim/judgement.py": _RARE,
    "sim/outages.py": _RARE,
    "sim/scenario": "pydantic makes its classes out of their annotations",
    "sim/seed_range.py": _AROUND,
    "sim/seeds.py": _AROUND,
    "sim/result_lines.py": _AROUND,
    "sim/seeds_output.py": _AROUND,
    "sim/shrink": _AROUND,
    "sim/sometimes/answers.py": _RARE,
    "sim/sometimes/points.py": _RARE,
    "sim/sometimes/watched.py": _RARE,
    "sim/swarm": _AROUND,
    "sim/view": _AROUND,
    "sim/witness/compacted.py": _RARE,
    "storage/batch/control_batches.py": _RARE,
    "storage/batch/control_records.py": _RARE,
    "storage/batch/conversion.py": _RARE,
    "storage/batch/legacy": _RARE,
    "storage/batch/cut_record.py": "has a class derived from a tuple, which mypyc cannot compile",
    "storage/batch/shape.py": "keeps slices to cut bytes with, for which mypyc writes an index by a number",
    "storage/cleaner": _RARE,
    "storage/codec/lz4_frame.py": _RARE,
    "storage/codec/snappy_java.py": _RARE,
    "storage/codec/zstd_stream.py": _RARE,
    "storage/directory": _RARE,
    "storage/disk/checkpoints.py": _RARE,
    "storage/disk/file_locks.py": _RARE,
    "storage/disk/handle_pool.py": _RARE,
    "storage/disk/machine_limits.py": _RARE,
    "storage/disk/os_filesystem.py": "has a class derived from int, which mypyc cannot compile",
    "storage/disk/overlay.py": _RARE,
    "storage/errors.py": _BASES,
    "storage/index/transaction_index.py": _RARE,
    "storage/inspection": _AROUND,
    "storage/producers/prepared_snapshot.py": _RARE,
    "storage/producers/rebuild.py": _RARE,
    "storage/producers/recall.py": _RARE,
    "storage/producers/snapshot.py": _RARE,
    "storage/producers/snapshot_files.py": _RARE,
    "storage/recovery": _RARE,
    "storage/segment/live_files.py": _RARE,
    "storage/segment/replace.py": _RARE,
    "storage/segment/split.py": _RARE,
    "storage/server_settings.py": _RARE,
    "storage/validation/checked.py": "a class narrows what an attribute of its base may be, which mypyc refuses",
    "storage/validation/rebuild.py": _RARE,
}
OPTIMISATION = ("-O1", "-g0", "-fwrapv", "-DNDEBUG", "-fPIC", "-fvisibility=hidden", "-fno-plt", "-w")
MYPY_OPTIONS = """[mypy]
explicit_package_bases = True
namespace_packages = True
ignore_missing_imports = True
[mypy-cluster.rpc.*]
ignore_errors = True
"""
_DIGEST = "made-from.txt"


class BuildError(Exception):
    """The compiled build cannot be made; the message says what is missing or what failed."""


class NoCompiler(BuildError):
    """This machine has no C compiler, or no header files for it."""


def is_made() -> bool:
    """Whether `build/compiled` was made from the files of the checkout as they are now."""
    digest = BUILT / _DIGEST
    return digest.exists() and digest.read_text() == made_from()


def made_from() -> str:
    """Returns a digest of all that the build is made from: the packages, these tools, and the version of Python."""
    found = sha256(sys.version.encode())
    for path in (*_files(), Path(__file__), Path(__file__).with_name("native_form.py")):
        found.update(str(path.relative_to(ROOT)).encode() + b"\0" + path.read_bytes())
    return found.hexdigest()


def compiled_modules() -> list[str]:
    """Returns the files of the modules that are compiled, in the checkout, relative to it."""
    names = [str(path.relative_to(ROOT)) for path in _files() if path.suffix == ".py"]
    return [name for name in names if _is_compiled(name)]


def make() -> int:
    """Make `build/compiled`. Returns the number of its compiled modules. Raises BuildError, FormError."""
    compiler = _compiler()
    digest, modules = made_from(), compiled_modules()
    shutil.rmtree(WORK, ignore_errors=True)
    OBJECTS.mkdir(parents=True, exist_ok=True)
    for path in _files():
        _copy(path, WORK)
    sources = {name: (ROOT / name).read_text() for name in modules}
    tuples = {each for name, source in sources.items() for each in named_tuples(source, name)}
    for name, source in sources.items():
        (WORK / name).write_text(native_form(source, name, tuples))
    (WORK / "mypy.ini").write_text(MYPY_OPTIONS)
    extensions = _extensions(modules)
    headers = b"".join(path.read_bytes() for path in sorted((WORK / "build").rglob("*.h")))
    used = {each for extension in extensions for each in _build(compiler, extension, headers)}
    for unused in set(OBJECTS.iterdir()) - used:
        unused.unlink()
    shutil.rmtree(BUILT, ignore_errors=True)
    for path in _files():
        _copy(path, BUILT)
    for library in _libraries():
        target = BUILT / library.relative_to(WORK)
        shutil.copyfile(library, target)
    (BUILT / _DIGEST).write_text(digest)
    return len(modules)


def _files() -> Iterator[Path]:
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*")):
            if path.is_file() and path.suffix not in (".pyc", ".so"):
                yield path


def _is_compiled(name: str) -> bool:
    is_named = any(name == each or name.startswith(f"{each}/") for each in COMPILED)
    is_left_out = any(name == each or name.startswith(f"{each}/") for each in LEFT_OUT)
    return is_named and not is_left_out and not name.endswith("__init__.py")


def _copy(path: Path, target: Path) -> None:
    copied = target / path.relative_to(ROOT)
    copied.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(path, copied)


def _compiler() -> list[str]:
    """Returns the command of the C compiler. Raises NoCompiler if it or Python's header files are missing."""
    command = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")
    if shutil.which(command[0]) is None:
        raise NoCompiler(f"no C compiler: {command[0]} is not on PATH")
    if not Path(sysconfig.get_path("include"), "Python.h").exists():
        raise NoCompiler("Python.h is missing: install the header files of this Python (python3-dev)")
    return command


def _extensions(modules: Sequence[str]) -> list[Any]:
    """Returns what mypyc wants compiled; the C files are in `build/native/build`. Raises BuildError."""
    from mypyc.build import mypycify

    before = Path.cwd()
    os.chdir(WORK)
    try:
        return list(mypycify(["--config-file=mypy.ini", *modules], multi_file=True))
    except SystemExit as error:
        raise BuildError("mypyc refuses a module; its words are above") from error
    finally:
        os.chdir(before)


def _build(compiler: Sequence[str], extension: Any, headers: bytes) -> list[Path]:
    """Compile the files of one library, as many at once as there are cores, and link them. Returns the objects."""
    includes = [f"-I{path}" for path in (*extension.include_dirs, "build", sysconfig.get_path("include"))]
    command = [*compiler, *OPTIMISATION, *includes, "-c"]
    sources = [source for source in extension.sources if source.endswith(".c")]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        objects = list(pool.map(lambda source: _object(command, source, headers), sources))
    library = extension.name.replace(".", "/") + str(sysconfig.get_config_var("EXT_SUFFIX"))
    linker = shlex.split(str(sysconfig.get_config_var("LDSHARED")))
    _run([*linker, *map(str, objects), "-o", library])
    return objects


def _object(command: Sequence[str], source: str, headers: bytes) -> Path:
    """Returns the object of a C file, which an earlier build may have left."""
    text = (WORK / source).read_bytes()
    key = sha256("\0".join([*command, source]).encode() + headers + text).hexdigest()
    target = OBJECTS / f"{key}.o"
    if not target.exists():
        _run([*command, source, "-o", f"{target}.new"])
        Path(f"{target}.new").replace(target)
    return target


def _run(command: Sequence[str]) -> None:
    done = subprocess.run(command, cwd=WORK, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BuildError(f"{shlex.join(command)}\n{done.stderr}")


def _libraries() -> list[Path]:
    return sorted(path for path in WORK.rglob("*.so") if "build" not in path.relative_to(WORK).parts[:1])
