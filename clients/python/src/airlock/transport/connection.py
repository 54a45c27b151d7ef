"""A connection to the service, also through a proxy."""

from __future__ import annotations

import base64
import http.client
import ipaddress
import ssl
from typing import Dict, Optional, Tuple
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

from ..errors import AirlockError

# Longer than three lost packets take. A host that does not exist is reported by then.
_CONNECT_S = 10.0
_BLOCK_BYTES = 65536


class Address:
    """Where the service is, and the proxy that the environment names for it."""

    def __init__(self, url: str) -> None:
        try:
            parts = urlsplit(url)
            host, self._port = parts.hostname, parts.port
        except ValueError as error:
            raise AirlockError(f"{url} is not an address: {error}.") from None
        if parts.scheme not in ("http", "https") or not host:
            raise AirlockError(f"{url} is not an address: an address begins with http:// or https://.")
        self.path = parts.path
        self._host = host
        self._origin = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
        self._tls = ssl.create_default_context() if parts.scheme == "https" else None
        proxy = None if _is_loopback(host) or proxy_bypass(host) else getproxies().get(parts.scheme)
        self._proxy = _Proxy(proxy) if proxy else None

    @property
    def way(self) -> str:
        """What a message says after "could not be reached"."""
        return f" through the proxy {self._proxy.name}" if self._proxy else ""

    def open(
        self, timeout: Optional[float]
    ) -> Tuple[http.client.HTTPConnection, str, Dict[str, str]]:
        """A connection that is not yet made, what its targets begin with, and further headers."""
        proxy = self._proxy
        host, port = (proxy.host, proxy.port) if proxy else (self._host, self._port)
        connect_s = min(timeout or _CONNECT_S, _CONNECT_S)
        if self._tls is None:
            connection = http.client.HTTPConnection(
                host, port, timeout=connect_s, blocksize=_BLOCK_BYTES
            )
            return (connection, self._origin, proxy.headers) if proxy else (connection, "", {})
        connection = http.client.HTTPSConnection(
            host, port, timeout=connect_s, blocksize=_BLOCK_BYTES, context=self._tls
        )
        if proxy:
            connection.set_tunnel(self._host, self._port, proxy.headers)
        return connection, "", {}


class _Proxy:
    def __init__(self, url: str) -> None:
        parts = urlsplit(url if "//" in url else f"http://{url}")
        if parts.scheme != "http" or not parts.hostname:
            raise AirlockError(
                f"The environment names a proxy of a kind that is not supported ({parts.scheme}): "
                "name one of http://, or the service's host in NO_PROXY."
            )
        self.host = parts.hostname
        self.port = parts.port or 80
        self.name = f"{self.host}:{self.port}"
        self.headers: Dict[str, str] = {}
        if parts.username:
            user = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            code = base64.b64encode(user.encode()).decode()
            self.headers["Proxy-Authorization"] = f"Basic {code}"


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
