"""A part of the client, such as ``client.files``."""

from __future__ import annotations

from .transport import Transport


class Part:
    def __init__(self, transport: Transport) -> None:
        self._transport = transport
