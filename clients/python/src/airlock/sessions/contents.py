"""What a session has: files and interpreters."""

from __future__ import annotations

from os import PathLike
from typing import Any, Dict, List, Union

from ..jobs.files import FileBody, opened
from ..record import shape
from ..transport.download import parts, save
from ..transport.transport import Transport, step
from ..types import SessionContext, SessionFile


class SessionFiles:
    """Files of a session, in the order of its calls. Paths are relative to its working directory, /output."""

    def __init__(self, transport: Transport, session: str) -> None:
        self._transport = transport
        self._path = f"{session}/files"

    def write(self, path: str, body: Union[FileBody, str]) -> None:
        """Writes a file, and the folders of its path. Replaces an existing one.

        :param body: Text; bytes; ``Path("d.csv")`` for a file on disk; or an open binary file.
        """
        headers = {"Content-Type": "application/octet-stream"}
        with opened(body.encode() if isinstance(body, str) else body) as file:
            self._transport.send_bytes("PUT", self._of(path), None, file, headers)

    def read(self, path: str) -> bytes:
        """The whole file."""
        return b"".join(parts(self._transport, self._of(path)))

    def save(self, path: str, to: Union[str, PathLike[str]]) -> None:
        """Writes the file to disk as it arrives. Replaces an existing file, and makes its folder."""
        save(self._transport, self._of(path), to)

    def list(self, path: str = "") -> List[SessionFile]:
        """What a folder has, ordered by name."""
        answer: Dict[str, Any] = self._transport.send("GET", self._path, {"path": path or None})
        return [shape(SessionFile, item) for item in answer["items"]]

    def delete(self, path: str) -> None:
        """Removes a file, or a folder with all that it has."""
        self._transport.send("DELETE", self._of(path))

    def _of(self, path: str) -> str:
        return f"{self._path}/{'/'.join(map(step, path.split('/')))}"


class Contexts:
    """The interpreters of a session. Each has variables of its own; files are shared."""

    def __init__(self, transport: Transport, session: str) -> None:
        self._transport = transport
        self._path = f"{session}/contexts"

    def create(self) -> SessionContext:
        """Starts another interpreter. Calls choose it with ``context=it.context_id``."""
        return shape(SessionContext, self._transport.send("POST", self._path))

    def list(self) -> List[SessionContext]:
        """All of them, the first one ``default``."""
        answer: Dict[str, Any] = self._transport.send("GET", self._path)
        return [shape(SessionContext, item) for item in answer["items"]]

    def delete(self, context_id: str) -> None:
        """Ends one that has no open call."""
        self._transport.send("DELETE", f"{self._path}/{step(context_id)}")
