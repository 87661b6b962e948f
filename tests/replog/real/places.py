"""Stand-ins for what a step needs when no process runs."""

from __future__ import annotations

from typing import final

from replog.real.site import TopicRequest


@final
class Nobody:
    """Keeps the requests about topics."""

    def __init__(self) -> None:
        self.asked: list[TopicRequest] = []

    def ask(self, request: TopicRequest) -> None:
        self.asked.append(request)
