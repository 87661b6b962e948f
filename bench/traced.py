"""A node or a client that notes when a batch passes: `python -m bench.traced FILE node …` or `… FILE client …`.

What follows `node` are the arguments of `cluster.local.node`, what follows `client` those of `bench/load.py`. At its
end the process writes its notes to FILE as JSON: by point, nanoseconds of the monotonic clock, which all processes of
a machine share. Noted are the moments at which gRPC gets bytes (`out PATH`) and hands them over (`in PATH`) on each
stream, begin and end of each append, with the last offset of the log after it, and sends and acknowledgements of
the client. The product does not know of it: functions of gRPC, of the log and of the client are replaced in this
process alone.
"""

from __future__ import annotations

import json
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast, final

import grpc
import grpc.aio

from bench import load
from cluster.local import node
from cluster.shell.clients import AsyncProducer
from storage.log.appends import Appends

now_ns = time.perf_counter_ns
Convert = Callable[[Any], Any]


@final
class Notes:
    """The moments at which something passed each point."""

    def __init__(self) -> None:
        self.points: defaultdict[str, list[Any]] = defaultdict(list)

    def install(self) -> None:
        """Replaces the functions whose calls are noted."""
        self._install_server()
        self._install_channel()
        self._install_append("as_leader")
        self._install_append("as_follower")
        self._install_client()

    def _before(self, point: str, convert: Convert | None) -> Convert:
        moments = self.points[point]

        def noting(value: Any) -> Any:
            moments.append(now_ns())
            return value if convert is None else convert(value)

        return noting

    def _after(self, point: str, convert: Convert | None) -> Convert:
        moments = self.points[point]

        def noting(value: Any) -> Any:
            converted = value if convert is None else convert(value)
            moments.append(now_ns())
            return converted

        return noting

    def _install_server(self) -> None:
        module: Any = grpc
        make = module.method_handlers_generic_handler

        def traced(service: str, handlers: dict[str, Any]) -> Any:
            for name, handler in handlers.items():
                if handler.request_streaming:
                    path = f"/{service}/{name}"
                    handlers[name] = handler._replace(
                        request_deserializer=self._before(f"in {path}", handler.request_deserializer),
                        response_serializer=self._after(f"out {path}", handler.response_serializer),
                    )
            return make(service, handlers)

        module.method_handlers_generic_handler = traced

    def _install_channel(self) -> None:
        channel = cast("Any", grpc.aio.insecure_channel("127.0.0.1:1")).__class__
        open_stream = channel.stream_stream

        def traced(
            owner: Any, path: str, request_serializer: Any = None, response_deserializer: Any = None
        ) -> Any:
            to_bytes = self._after(f"out {path}", request_serializer)
            return open_stream(owner, path, to_bytes, self._before(f"in {path}", response_deserializer))

        channel.stream_stream = traced

    def _install_append(self, name: str) -> None:
        append, moments = getattr(Appends, name), self.points[f"append {name}"]

        def traced(owner: Any, *arguments: Any, **options: Any) -> Any:
            began = now_ns()
            info = append(owner, *arguments, **options)
            moments.append((began, now_ns(), info.last_offset))
            return info

        setattr(Appends, name, traced)

    def _install_client(self) -> None:
        send_now, sent, acked = AsyncProducer.send_now, self.points["sent"], self.points["acked"]

        def traced(owner: AsyncProducer, record: Any, on_outcome: Callable[[Any], None]) -> None:
            sent.append(now_ns())

            def on_answer(outcome: Any) -> None:
                acked.append((now_ns(), outcome.offset))
                on_outcome(outcome)

            send_now(owner, record, on_answer)

        AsyncProducer.send_now = traced  # type: ignore[assignment, method-assign]


def main() -> int:
    """Runs the process that the command line asks for; returns its exit status."""
    file, role, *arguments = sys.argv[1:]
    notes = Notes()
    notes.install()
    sys.argv[1:] = arguments
    try:
        return node.main() if role == "node" else load.main()
    finally:
        Path(file).write_text(json.dumps(notes.points))


if __name__ == "__main__":
    sys.exit(main())
