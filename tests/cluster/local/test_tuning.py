"""Garbage collections of a node's process, which do not stop it for long."""

from __future__ import annotations

import gc
import json
import signal
import subprocess
import sys
import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.core.messages import CONTROLLER_ID
from cluster.local.tuning import ShortCollections


class Circle:
    """An object that refers to itself, so that only a collection frees it."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture
def collections() -> Iterator[ShortCollections]:
    """Yield collections that have begun and count at each one what is frozen."""
    collections = ShortCollections(collections_a_count=1)
    collections.begin()
    yield collections
    collections.end()


@pytest.mark.usefixtures("collections")
def test_a_full_collection_walks_only_what_came_after_the_last_one() -> None:
    before, kept = gc.get_freeze_count(), [Circle() for _ in range(1000)]
    gc.collect()
    # All that a collection walks; the frozen ones are not among them.
    walked = gc.get_objects()
    assert not any(each is kept for each in walked)
    assert gc.get_freeze_count() >= before + len(kept)


@pytest.mark.usefixtures("collections")
def test_a_collection_frees_circles_that_came_after_the_last_one() -> None:
    freed = weakref.ref(Circle())
    assert freed() is not None
    gc.collect()
    assert freed() is None


@pytest.mark.usefixtures("collections")
def test_a_young_collection_freezes_nothing() -> None:
    before, kept = gc.get_freeze_count(), Circle()
    gc.collect(1)
    assert gc.get_freeze_count() <= before
    assert kept is kept.itself


@pytest.mark.usefixtures("collections")
def test_circles_that_were_frozen_are_freed_once_twice_as_much_is_frozen() -> None:
    circle = Circle()
    freed, before = weakref.ref(circle), gc.get_freeze_count()
    gc.collect()
    del circle
    gc.collect()
    assert freed() is not None
    kept = [list[int]() for _ in range(before + 1000)]
    # The first one freezes them and finds that there are many, the next one is complete.
    gc.collect()
    gc.collect()
    assert freed() is None and kept


def test_what_was_frozen_is_walked_again_at_the_end() -> None:
    collections = ShortCollections()
    collections.begin()
    kept = Circle()
    gc.collect()
    collections.end()
    assert any(each is kept for each in gc.get_objects())
    assert gc.get_freeze_count() == 0


_NODE = """
import gc, json, sys
from cluster.local.node import main
assert gc.get_freeze_count() == 0
status = main()
print(json.dumps({"status": status, "frozen": gc.get_freeze_count()}))
"""


@pytest.mark.slow
def test_a_node_freezes_what_it_has_loaded(tmp_path: Path) -> None:
    arguments = ["--node-id", str(CONTROLLER_ID), "--port", "0", "--directory", str(tmp_path)]
    command = [sys.executable, "-c", _NODE, *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as node:
        assert node.stdout is not None
        assert json.loads(node.stdout.readline())["event"] == "ready"
        node.send_signal(signal.SIGTERM)
        ended = json.loads(node.stdout.readlines()[-1])
    assert ended["status"] == 0
    assert ended["frozen"] > 10_000, ended
