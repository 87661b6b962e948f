"""A cache of leader epochs and its file."""

from __future__ import annotations

from storage.disk.filesystem import read_file
from storage.leader_epochs import LeaderEpochCache
from tests.storage.producers.producers import new_disk

PATH = "/log/leader-epoch-checkpoint"
A = [(2, 6), (3, 8), (4, 11)]


def cache_of(*entries: tuple[int, int]) -> LeaderEpochCache:
    cache = LeaderEpochCache(new_disk()[1], PATH)
    for epoch, start_offset in entries:
        cache.assign(epoch, start_offset)
    return cache


def file_content(cache: LeaderEpochCache) -> bytes:
    return read_file(cache._file_system, PATH)
