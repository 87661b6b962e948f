"""The directory of a campaign of drawn runs: what it is of, and Parquet files that are only ever added.

| file | what it is |
| --- | --- |
| `_campaign.json` | the format, and the options that all rows have in common; locked while a campaign runs |
| `part-00000.parquet` | rows, each seed once in all files together |
| `.part.tmp` | a file that is not whole yet |

Spark reads the directory as one table: it skips names that begin with `_` or a dot. A file gets its name when it is
whole and on the disk, so a driver that is killed leaves whole files only, and a campaign goes on where they end.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import final

from pipeline.drawn_rows import Row, as_parquet, rows_of
from sim.swarm.code import CODE, code_digest, why_not_of
from sim.swarm.job import SwarmJob
from storage.disk.filesystem import OpenMode, write_synced
from storage.disk.os_filesystem import OsFileSystem
from storage.errors import StorageError

FORMAT = "replog-spark-swarm-1"
HEADER = "_campaign.json"
_PART = re.compile(r"part-([0-9]+)\.parquet")
_UNFINISHED = ".part.tmp"


class CampaignDirectoryError(StorageError):
    """A directory that a campaign cannot go on with: the message is `PATH: what`."""


@final
class ResultsDirectory:
    """The directory of a campaign, which no other process may write to meanwhile.

    `rows` are those that it held when it was opened, by seed.
    """

    def __init__(self, path: Path, job: SwarmJob) -> None:
        """Open the directory, or create it. Raises CampaignDirectoryError, and leaves such a directory as it is."""
        self._path, self._files = path, OsFileSystem()
        try:
            self._check_ours()
            path.mkdir(parents=True, exist_ok=True)
            self._lock = self._files.lock(str(path / HEADER))
        except BlockingIOError:
            raise CampaignDirectoryError(f"{path}: another campaign writes to it") from None
        except OSError as error:
            raise CampaignDirectoryError(f"{path}: {error.strerror or error}") from error
        try:
            self._begin(job)
            self.rows = self._read()
        except BaseException:
            self.close()
            raise
        # A file may have been removed: its rows are run again, and no name is used twice.
        numbers = [int(found[1]) for each in self._parts() if (found := _PART.fullmatch(each.name))]
        self._next = 1 + max(numbers, default=-1)

    def close(self) -> None:
        self._lock.release()

    def add(self, rows: Sequence[Row]) -> None:
        """Add a file with these rows, whole or not at all. Raises OSError if it cannot be written."""
        assert not self.rows.keys() & {row["seed"] for row in rows}, "a seed that has a row already"
        unfinished, target = self._path / _UNFINISHED, self._path / f"part-{self._next:05d}.parquet"
        assert not target.exists(), target
        unfinished.unlink(missing_ok=True)
        self._write(unfinished, as_parquet(rows))
        self._files.rename(str(unfinished), str(target))
        self._files.sync_directory(str(self._path))
        self.rows |= {row["seed"]: row for row in rows}
        self._next += 1

    def _check_ours(self) -> None:
        """Raise CampaignDirectoryError for anything that exists and is no directory of a campaign."""
        if self._path.is_symlink() or (self._path.exists() and not self._path.is_dir()):
            raise CampaignDirectoryError(
                f"{self._path}: is no directory; nothing is overwritten, name a new one"
            )
        if self._path.is_dir() and not (self._path / HEADER).exists() and any(self._path.iterdir()):
            raise CampaignDirectoryError(
                f"{self._path}: exists and holds no campaign of drawn runs; nothing is overwritten, name a new one"
            )

    def _begin(self, job: SwarmJob) -> None:
        """Write the header, or check the one that is there; one that a kill has torn is written again.

        It is on the disk before any rows are: those of a directory whose header is lost could not be gone on with.
        """
        header = {"format": FORMAT, CODE: code_digest()} | job.identity()
        path = self._path / HEADER
        text = path.read_text(encoding="utf-8", errors="replace")
        if not text.endswith("\n") and not self._parts():
            # In its place, since the lock is on this file.
            write_synced(self._files, str(path), f"{json.dumps(header)}\n".encode())
            self._files.sync_directory(str(self._path))
            return
        try:
            found = json.loads(text)
        except ValueError as error:
            raise CampaignDirectoryError(f"{path}: no JSON") from error
        if found != header:
            raise CampaignDirectoryError(f"{path}: {why_not_of(found, header)}: {json.dumps(found)}")

    def _parts(self) -> list[Path]:
        return sorted(self._path.glob("part-*.parquet"))

    def _read(self) -> dict[int, Row]:
        found: dict[int, Row] = {}
        for path in self._parts():
            try:
                rows = list(rows_of(path))
            # Arrow's own errors are both.
            except (OSError, ValueError) as error:
                raise CampaignDirectoryError(f"{path}: no rows of a campaign: {error}") from error
            for row in rows:
                if row["seed"] in found:
                    raise CampaignDirectoryError(f"{path}: seed {row['seed']} has a row in an earlier file")
                found[row["seed"]] = row
        return found

    def _write(self, path: Path, data: bytes) -> None:
        file = self._files.open(str(path), OpenMode.CREATE_NEW)
        try:
            file.append(data)
            file.sync()
        finally:
            file.close()
