"""Requests that came by mistake: a node refuses them (G-4, C1, CTL-1, LED-1)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import final

from cluster.core.errors import ErrorCode
from cluster.core.messages import FetchResponse, ProduceResponse, RequestBody, ResponseBody
from sim.checkers.base import Jury


@final
class Strays:
    """Judges the answers to requests that no node or client of the cluster has sent, and that must be refused."""

    name = "strays"

    def __init__(self, jury: Jury) -> None:
        self._jury = jury

    def on_answer(self, node: str, request: RequestBody, why: str, body: ResponseBody) -> None:
        """Receives the answer of a node; `why` says what is wrong with the request, empty if it may be granted."""
        if why and any(error is ErrorCode.NONE for error in _errors(body)):
            self._jury.report(self.name, f"{node} granted a {type(request).__name__} {why}")


def _errors(body: ResponseBody) -> Iterator[ErrorCode]:
    """Yields the error of an answer, or those of its partitions."""
    error = getattr(body, "error", ErrorCode.NONE)
    if error is ErrorCode.NONE and isinstance(body, FetchResponse | ProduceResponse):
        yield from (each.error for each in body.partitions)
    else:
        yield error
