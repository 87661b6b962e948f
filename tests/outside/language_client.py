"""The part of an editor that asks a language server what it completes: the Language Server Protocol over pipes."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any, final

# JSON-RPC 2.0, in which a message with an id and a method asks for an answer and one without an id does not.
Message = dict[str, Any]


@final
class LanguageServer:
    """The editor's end of a language server that reads `stdin` and writes `stdout`, for programs in `directory`."""

    def __init__(self, stdin: IO[bytes], stdout: IO[bytes], directory: Path) -> None:
        self._stdin, self._stdout, self._directory = stdin, stdout, directory
        self._asked = 0

    def start(self, python: Path) -> None:
        """Says hello; programs are completed as the environment of `python` would run them."""
        options = {"workspace": {"environmentPath": str(python)}, "completion": {"disableSnippets": True}}
        hello: Message = {"processId": None, "rootUri": self._directory.as_uri(), "capabilities": {}}
        self._ask("initialize", {**hello, "initializationOptions": options})
        self._notify("initialized", {})

    def complete(self, text: str) -> dict[str, Message]:
        """Returns what can be typed at the end of a program with this text: the items by their labels."""
        uri = (self._directory / f"typed_{self._asked}.py").as_uri()
        document = {"uri": uri, "languageId": "python", "version": 1, "text": text}
        self._notify("textDocument/didOpen", {"textDocument": document})
        lines = text.split("\n")
        position = {"line": len(lines) - 1, "character": len(lines[-1])}
        found = self._ask("textDocument/completion", {"textDocument": {"uri": uri}, "position": position})
        items = found["items"] if isinstance(found, dict) else found or []
        return {item["label"]: self._ask("completionItem/resolve", item) for item in items}

    def _ask(self, method: str, parameters: Mapping[str, object] | None) -> Any:
        self._asked += 1
        number = self._asked
        self._write({"id": number, "method": method, "params": parameters})
        while (answer := self._read()).get("id") != number or "method" in answer:
            # The server may ask too, for a progress bar for example; that nothing is there is an answer to all of it.
            if "method" in answer and "id" in answer:
                self._write({"id": answer["id"], "result": None})
        assert "error" not in answer, answer
        return answer["result"]

    def _notify(self, method: str, parameters: Mapping[str, object] | None) -> None:
        self._write({"method": method, "params": parameters})

    def _write(self, message: Mapping[str, object]) -> None:
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        self._stdin.write(b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
        self._stdin.flush()

    def _read(self) -> Message:
        size = 0
        while header := self._stdout.readline().strip():
            name, _, value = header.partition(b":")
            size = int(value) if name.lower() == b"content-length" else size
        assert size > 0, "the language server has ended"
        message: Message = json.loads(self._stdout.read(size))
        return message


@contextlib.contextmanager
def language_server(python: Path, directory: Path) -> Iterator[LanguageServer]:
    """Run a jedi-language-server until the end of the block."""
    command = [str(Path(sys.executable).with_name("jedi-language-server"))]
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, cwd=directory
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        try:
            client = LanguageServer(process.stdin, process.stdout, directory)
            client.start(python)
            yield client
        finally:
            process.kill()
