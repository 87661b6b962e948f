"""The output of a dump of files."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from storage.disk.os_filesystem import OsFileSystem
from storage.inspection.dump.dump import DumpOptions, DumpStatus, dump_files


@dataclass
class DumpResult:
    """The status of a dump, its lines and its errors."""

    status: DumpStatus
    lines: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    @property
    def output(self) -> bytes:
        return "".join(f"{line}\n" for line in self.lines).encode()


def dumped(*paths: str | Path, options: DumpOptions | None = None) -> DumpResult:
    """Dump the files. Returns what was printed."""
    told = DumpResult(DumpStatus.SOUND)
    told.status = dump_files(
        OsFileSystem(),
        [str(path) for path in paths],
        options or DumpOptions(),
        write=told.lines.append,
        report=told.errors.append,
    )
    return told
