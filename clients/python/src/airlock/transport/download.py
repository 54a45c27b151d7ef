"""Files as they arrive: in parts, and to disk."""

from __future__ import annotations

import http.client
import os
import uuid
from os import PathLike
from typing import Iterator, Optional, Union

from ..errors import AirlockError, lasting
from .retries import is_worth_repeating, pause_s
from .transport import Transport

_PART_BYTES = 65536


def parts(transport: Transport, path: str) -> Iterator[bytes]:
    """The parts of a file. After the connection breaks, the download continues where it was."""
    size = breaks = 0
    tag: Optional[str] = None
    while True:
        headers = {"Range": f"bytes={size}-"} if size else {}
        try:
            with transport.change(retries=0).open(path, {}, headers) as (answer, _):
                if size and (answer.status != 206 or answer.headers.get("ETag") != tag):
                    raise lasting(f"{path} could not be continued after the connection broke: fetch it again.")
                tag = answer.headers.get("ETag")
                for part in iter(lambda: answer.read1(_PART_BYTES), b""):
                    size += len(part)
                    breaks = 0
                    yield part
                if not answer.length:
                    return
                raise http.client.IncompleteRead(b"", answer.length)
        except AirlockError as error:
            breaks += 1
            if breaks > transport.retries or not is_worth_repeating(error, True):
                raise
            transport.cancel.sleep(pause_s(breaks, error))


def save(transport: Transport, path: str, to: Union[str, PathLike[str]]) -> None:
    """The file appears once it is whole."""
    target = os.path.realpath(to)
    # realpath leaves out the slash with which a folder is named that does not exist yet.
    is_folder = os.fspath(to).endswith(("/", os.sep))
    if is_folder or (os.path.exists(target) and not os.path.isfile(target)):
        raise AirlockError(f"{os.fspath(to)} is not a regular file: name the file to write.")
    folder = os.path.dirname(target)
    os.makedirs(folder, exist_ok=True)
    # No other file has this name. It is short: the target's may be as long as a name can be.
    partial = os.path.join(folder, f".airlock-{uuid.uuid4().hex}.part")
    try:
        with open(partial, "xb") as file:
            for part in parts(transport, path):
                file.write(part)
        os.replace(partial, target)
    except BaseException:
        if os.path.exists(partial):
            os.remove(partial)
        raise
