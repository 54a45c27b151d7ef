"""Files that jobs get, and files that jobs wrote."""

from __future__ import annotations

import io
from contextlib import contextmanager
from os import PathLike
from typing import BinaryIO, Generator, List, Union

from ..transport.download import parts, save
from ..record import shape
from ..transport.part import Part
from ..transport.transport import step
from ..types import Artifact, UploadedFile

#: A file on disk, bytes, or a binary file that is open and can be read again.
FileBody = Union["PathLike[str]", bytes, BinaryIO]


class Files(Part):
    """Files that jobs get by their ``file_id``."""

    def upload(self, name: str, body: FileBody) -> UploadedFile:
        """Stores a file. If the connection breaks, it is sent again.

        :param body: ``Path("d.csv")`` for a file on disk, which is sent as it is read; bytes; or an open
            binary file.
        """
        headers = {"Content-Type": "application/octet-stream"}
        with opened(body) as file:
            answer = self._transport.send_bytes("POST", "/files", {"name": name}, file, headers)
        return shape(UploadedFile, self._transport.parse(answer))

    def list(self) -> List[UploadedFile]:
        """All of them, the newest first."""
        items = self._transport.pages("/files", {}, "file_id", None)
        return [shape(UploadedFile, item) for item in items]

    def get(self, file_id: str) -> bytes:
        """The whole file."""
        return b"".join(parts(self._transport, f"/files/{step(file_id)}"))

    def save(self, file_id: str, to: Union[str, PathLike[str]]) -> None:
        """Writes the file to disk as it arrives. Replaces an existing file, and makes its folder."""
        save(self._transport, f"/files/{step(file_id)}", to)

    def delete(self, file_id: str) -> None:
        """Removes the file. Jobs that have it keep it."""
        self._transport.send("DELETE", f"/files/{step(file_id)}")


class Artifacts(Part):
    """The files that jobs wrote to /output."""

    def list(self, job_id: str) -> List[Artifact]:
        """Their names, sizes and hashes."""
        answer = self._transport.send("GET", f"/jobs/{step(job_id)}/artifacts")
        return [shape(Artifact, item) for item in answer["artifacts"]]

    def get(self, job_id: str, name: str) -> bytes:
        """The whole file."""
        return b"".join(parts(self._transport, _path(job_id, name)))

    def save(self, job_id: str, name: str, to: Union[str, PathLike[str]]) -> None:
        """Writes the file to disk as it arrives. Replaces an existing file, and makes its folder."""
        save(self._transport, _path(job_id, name), to)


def _path(job_id: str, name: str) -> str:
    return f"/jobs/{step(job_id)}/artifacts/{'/'.join(map(step, name.split('/')))}"


@contextmanager
def opened(body: FileBody) -> Generator[BinaryIO, None, None]:
    """The body as an open file. One that the caller has opened stays open."""
    if isinstance(body, PathLike):
        with open(body, "rb") as file:
            yield file
    else:
        yield _as_file(body)


def _as_file(body: Union[bytes, BinaryIO]) -> BinaryIO:
    if isinstance(body, (bytes, bytearray, memoryview)):
        return io.BytesIO(body)
    if isinstance(body, str):
        raise TypeError(
            "A str may be a path or a text: give Path(…) to upload the file there, or "
            "….encode() to upload the text."
        )
    is_binary = hasattr(body, "seekable") and not isinstance(body, io.TextIOBase)
    if not is_binary or not body.seekable():
        raise TypeError(
            f"{type(body).__name__} cannot be uploaded: give a Path, bytes, or a file on disk "
            "that is open for reading bytes, as by open(…, 'rb')."
        )
    return body
