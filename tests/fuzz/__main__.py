"""Runs each harness under atheris, in a process of its own: `python -m tests.fuzz [--seconds N] [HARNESS …]`.

An input that breaks a harness is written into its corpus, as `crash-…`, `timeout-…` or `oom-…`; the exit status is 1.
"""

from __future__ import annotations

import argparse
import importlib
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.arguments import positive

MEMORY_MIB = 768
TIMEOUT_S = 10


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("--seconds", type=positive, default=30, help="for each harness")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("harness", nargs="*")
    given = parser.parse_args()
    if given.inside:
        return _fuzz(given.harness[0], given.seconds, given.seed)
    from tests.fuzz.harnesses import HARNESSES

    unknown = sorted(set(given.harness) - set(HARNESSES))
    if unknown:
        parser.error(f"no harness {', '.join(unknown)}: there are {', '.join(HARNESSES)}")
    failed = []
    for name in given.harness or HARNESSES:
        command = [sys.executable, "-m", "tests.fuzz", "--inside", "--seconds", str(given.seconds)]
        done = subprocess.run(
            [*command, "--seed", str(given.seed), name], stderr=subprocess.PIPE, text=True, check=False
        )
        runs = [line for line in done.stderr.splitlines() if line.startswith("Done ")]
        print(f"{name}: {runs[-1] if runs else 'stopped'}", flush=True)
        if done.returncode:
            failed.append(name)
            print(done.stderr[-4000:], file=sys.stderr, flush=True)
    print(f"{len(given.harness or HARNESSES)} harnesses, {len(failed)} failed {' '.join(failed)}".rstrip())
    return 1 if failed else 0


def _fuzz(name: str, seconds: int, seed: int) -> int:
    try:
        atheris = importlib.import_module("atheris")
    except ModuleNotFoundError:
        print("atheris is not installed: `make fuzz` installs it", file=sys.stderr)
        return 2
    with atheris.instrument_imports(include=["storage"]):
        from tests.fuzz.harnesses import CORPUS, HARNESSES, corpus
    harness, folder = HARNESSES[name], CORPUS / name
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        for number, data in enumerate([*harness.seeds(), *(path.read_bytes() for path in corpus(name))]):
            Path(scratch, f"seed-{number}").write_bytes(data)
        arguments = (
            f"-max_total_time={seconds}",
            f"-seed={seed}",
            f"-timeout={TIMEOUT_S}",
            f"-rss_limit_mb={MEMORY_MIB}",
            "-max_len=8192",
            f"-artifact_prefix={folder}/",
            scratch,
        )
        atheris.Setup([sys.argv[0], *arguments], harness.run)
        # This call ends the process.
        atheris.Fuzz()
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(3)
