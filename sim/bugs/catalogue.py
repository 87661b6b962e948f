"""The bugs there are."""

from __future__ import annotations

from sim.bugs import Bug

CATALOGUE: tuple[Bug, ...] = ()
