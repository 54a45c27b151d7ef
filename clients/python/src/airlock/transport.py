"""Requests: connections, retries, time-outs, idempotency keys, cancelling, downloads."""

from __future__ import annotations

import base64
import copy
import http.client
import io
import ipaddress
import json
import math
import os
import random
import re
import socket
import ssl
import threading
import uuid
from contextlib import contextmanager
from os import PathLike
from typing import (
    Any,
    BinaryIO,
    Callable,
    Dict,
    Generator,
    Iterator,
    Mapping,
    Optional,
    Set,
    Tuple,
    Union,
    cast,
)
from urllib.parse import quote, unquote, urlencode, urlsplit
from urllib.request import getproxies, proxy_bypass

from .errors import (
    AirlockError,
    Cancelled,
    ConnectionError,
    NoAnswerError,
    ProblemError,
    lasting,
)
from .problems import problem_classes
from .record import shape
from .types import Problem

Body = Union[bytes, BinaryIO, None]
#: An answer, and its socket.
Opened = Tuple[http.client.HTTPResponse, socket.socket]

_PAGE_ITEMS = 100
_PART_BYTES = 65536
# Longer than three lost packets take. A host that does not exist is reported by then.
_CONNECT_S = 10.0
_BLOCK_BYTES = 65536
# Requests that make jobs, files or sessions. With an idempotency key, a repeat makes no second one.
_TAKES_KEY = re.compile(r"/execute/(async|batch)$|/jobs/[^/]+/(rerun|fork)$|^/(files|sessions)$")
# Requests that change nothing when they are repeated.
_CAN_COME_TWICE = re.compile(
    r"^(POST (.*/cancel|/jobs/[^/]+/tool-calls/[^/]+)|DELETE /sessions/[^/]+)$"
)
_FIRST_S = 0.25
_LONGEST_S = 8.0
_LONGEST_ASKED_S = 60.0


class Transport:
    """Where the service is, and how to talk to it."""

    def __init__(
        self,
        url: str,
        key: Optional[str],
        tenant: Optional[str],
        retries: int,
        timeout: float,
        cancel: Cancel,
    ) -> None:
        # A page of the console stands for its service.
        self.url = re.sub(r"(?<=[^/])/console(/.*)?$", "", url.strip()).rstrip("/")
        self.key = checked_key(key)
        self.tenant = checked_tenant(tenant)
        self.retries = retries
        self.timeout = timeout
        self.cancel = cancel
        self._address = Address(self.url)

    def change(
        self,
        cancel: Optional[Cancel] = None,
        retries: Optional[int] = None,
        timeout: Optional[float] = None,
        tenant: Optional[str] = None,
    ) -> Transport:
        other = copy.copy(self)
        other.tenant = self.tenant if tenant is None else checked_tenant(tenant)
        other.retries = self.retries if retries is None else retries
        other.timeout = self.timeout if timeout is None else timeout
        other.cancel = cancel or self.cancel
        return other

    def send(
        self,
        method: str,
        path: str,
        query: Optional[Mapping[str, Any]] = None,
        body: Any = None,
    ) -> Any:
        """Sends JSON and answers with parsed JSON."""
        data = None if body is None else as_json(body)
        headers = {} if data is None else {"Content-Type": "application/json"}
        return self.parse(self.send_bytes(method, path, query, data, headers, has_own_key(body)))

    def parse(self, answer: bytes) -> Any:
        try:
            return json.loads(answer) if answer else None
        except ValueError:
            raise lasting(
                f"{self.url} did not answer as Airlock does: check the address, and what is between."
            ) from None

    def pages(
        self, path: str, query: Mapping[str, Any], id: str, limit: Optional[int]
    ) -> Iterator[Dict[str, Any]]:
        """The items of a list, page by page.

        :param id: The field of an item that leads to the next page.
        """
        left = math.inf if limit is None else limit
        before: Any = None
        while left > 0:
            size = min(left, _PAGE_ITEMS)
            page = self.send("GET", path, {**query, "before": before, "limit": size})
            yield from page["items"]
            if not page["has_more"]:
                return
            left -= size
            before = page["items"][-1][id]

    def send_bytes(
        self,
        method: str,
        path: str,
        query: Optional[Mapping[str, Any]] = None,
        body: Body = None,
        headers: Optional[Mapping[str, str]] = None,
        has_key: bool = False,
    ) -> bytes:
        """Sends bytes and answers with the whole body.

        :param has_key: Whether the body has an idempotency key.
        """

        def attempt(every: Mapping[str, str]) -> bytes:
            with self._answer(method, path, query, body, every) as (answer, _):
                return answer.read()

        return self._try(method, path, headers, attempt, has_key)

    @contextmanager
    def open(
        self, path: str, query: Mapping[str, Any], headers: Mapping[str, str]
    ) -> Generator[Opened, None, None]:
        """An answer whose body the caller reads; the retries end before."""

        def attempt(every: Mapping[str, str]) -> Any:
            opened = self._answer("GET", path, query, None, every)
            return opened, opened.__enter__()

        opened, answer = self._try("GET", path, headers, attempt)
        try:
            with self._translated():
                yield answer
        finally:
            opened.__exit__(None, None, None)

    def _try(
        self,
        method: str,
        path: str,
        headers: Optional[Mapping[str, str]],
        attempt: Callable[[Mapping[str, str]], Any],
        has_key: bool = False,
    ) -> Any:
        if not re.fullmatch(r"/[\x21-\x7e]*", path):
            raise AirlockError(f"{path!r} is not a path: a path begins with / and has no spaces.")
        every = self._headers(method, path, headers or {}, has_key)
        is_safe = has_key or is_repeatable(method, path, every)
        tries = 0
        while True:
            tries += 1
            try:
                with self._translated():
                    return attempt(every)
            except AirlockError as error:
                if tries > self.retries or not is_worth_repeating(error, is_safe):
                    raise
                self.cancel.sleep(pause_s(tries, error))

    @contextmanager
    def _answer(
        self,
        method: str,
        path: str,
        query: Optional[Mapping[str, Any]],
        body: Body,
        headers: Mapping[str, str],
    ) -> Generator[Opened, None, None]:
        if self.cancel.is_set:
            raise Cancelled("The call was cancelled.")
        given = {name: in_query(value) for name, value in (query or {}).items()}
        given = {name: value for name, value in given.items() if value is not None}
        timeout = self.timeout or None
        connection, before, further = self._address.open(timeout)
        target = self._address.path + path + (f"?{urlencode(given, doseq=True)}" if given else "")
        sock: Optional[socket.socket] = None
        try:
            try:
                connection.connect()
            except socket.timeout:
                raise OSError(f"no connection within {connection.timeout:g} s") from None
            sock = cast(socket.socket, connection.sock)
            self.cancel.watch(sock)
            sock.settimeout(timeout)
            every = {**headers, **further}
            # One piece of bytes would have to be sent within one time-out.
            file = io.BytesIO(body) if isinstance(body, bytes) else body
            if file is not None:
                every["Content-Length"] = str(file.seek(0, io.SEEK_END))
                file.seek(0)
            try:
                connection.request(method, before + target, file, every)
            except (BrokenPipeError, ConnectionResetError):
                # A service that refuses an upload answers before it has all of it.
                pass
            answer = connection.getresponse()
            if not _has_whole_head(answer):
                raise http.client.IncompleteRead(b"")
            if answer.status >= 400:
                headers = dict(answer.headers.items())
                raise problem_error(answer.status, headers, answer.read(), self._address.way)
            if answer.status >= 300:
                to = answer.headers.get("Location")
                raise lasting(f"{self.url} redirects to {to}: connect to the address of Airlock itself.")
            yield answer, sock
        finally:
            self.cancel.forget(sock)
            connection.close()

    def _headers(
        self, method: str, path: str, headers: Mapping[str, str], has_key: bool
    ) -> Dict[str, str]:
        every = dict(headers)
        if self.key is not None:
            every["Authorization"] = f"Bearer {self.key}"
        if self.tenant is not None:
            every["X-Airlock-Tenant"] = self.tenant
        if takes_key(method, path) and not has_key:
            every["Idempotency-Key"] = uuid.uuid4().hex
        return every

    @contextmanager
    def _translated(self) -> Generator[None, None, None]:
        try:
            yield
        except (OSError, http.client.HTTPException, ValueError, AttributeError) as error:
            if self.cancel.is_set:
                raise Cancelled("The call was cancelled.") from error
            if isinstance(error, (AirlockError, ValueError, AttributeError)):
                raise
            if isinstance(error, socket.timeout):
                message = f"{self.url} did not answer within {self.timeout:g} s."
                raise NoAnswerError(message) from error
            wrong = isinstance(error, ssl.SSLError) and "WRONG_VERSION" in str(error)
            reason = "it does not speak TLS; try http://" if wrong else repr(error)
            told = ConnectionError(
                f"{self.url} could not be reached{self._address.way}: {reason}"
            )
            told.is_lasting = wrong or isinstance(error, ssl.SSLCertVerificationError)
            raise told from error


class Part:
    """A part of the client, such as ``client.files``."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport


class Cancel:
    """Ends the calls that were given it: their sockets are closed, their pauses end."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sockets: Set[socket.socket] = set()
        self._event = threading.Event()

    @property
    def is_set(self) -> bool:
        return self._event.is_set()

    def cancel(self) -> None:
        with self._lock:
            self._event.set()
            sockets = list(self._sockets)
        for sock in sockets:
            _shut(sock)

    def watch(self, sock: Optional[socket.socket]) -> None:
        """Closes the socket too when it is cancelled, at once if it is already."""
        if sock is None:
            return
        with self._lock:
            self._sockets.add(sock)
        if self.is_set:
            _shut(sock)

    def forget(self, sock: Optional[socket.socket]) -> None:
        with self._lock:
            if sock is not None:
                self._sockets.discard(sock)

    def sleep(self, seconds: float) -> None:
        self._event.wait(seconds)


def _shut(sock: socket.socket) -> None:
    # Closing alone does not wake the thread that reads from it.
    try:
        sock.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass


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


def pause_s(tries: int, error: Optional[AirlockError] = None) -> float:
    """How long to wait before the next try. It is random, so that clients that failed together do not retry together."""
    asked_s = error.retry_after_s if isinstance(error, ProblemError) else None
    if asked_s is not None:
        return min(asked_s, _LONGEST_ASKED_S) + random.random() * _FIRST_S
    return min(_FIRST_S * 2 ** (tries - 1), _LONGEST_S) * (0.5 + random.random() / 2)


def takes_key(method: str, path: str) -> bool:
    """Whether a request can have an idempotency key."""
    return method == "POST" and bool(_TAKES_KEY.search(path))


def is_repeatable(method: str, path: str, headers: Mapping[str, str]) -> bool:
    """Whether a second request does no harm if the first one arrived."""
    if method in ("GET", "HEAD", "PUT"):
        return True
    return "Idempotency-Key" in headers or bool(_CAN_COME_TWICE.search(f"{method} {path}"))


def is_worth_repeating(error: AirlockError, is_safe: bool) -> bool:
    if isinstance(error, ConnectionError):
        return is_safe and not error.is_lasting
    if not isinstance(error, ProblemError):
        return False
    # A proxy cannot say whether the service has the request.
    if error.problem is None:
        return is_safe and error.status in (429, 502, 503, 504)
    if error.code == "rate_limited":
        return True
    if error.code == "quota_exceeded":
        # Other quotas are free again in hours.
        return error.problem.quota == "max_queued"
    # If it names no job, nothing was stored.
    return error.code == "unavailable" and (is_safe or error.job_id is None)


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


def step(id: str) -> str:
    """An id, or a part of a name, as a step of a path."""
    if not isinstance(id, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(
            "An id is a str, such as job.job_id or record.execution_id, "
            f"not {type(id).__name__}."
        )
    if id in ("", ".", ".."):
        # Where a service or proxy redirects to.
        raise AirlockError(f'"{id}" cannot be an id or a part of a name.')
    return quote(id, safe="")


def _has_whole_head(answer: http.client.HTTPResponse) -> bool:
    """Detects headers that break off: http.client takes them for complete, and the body for empty."""
    framing = answer.headers.get("Content-Length") or answer.headers.get("Transfer-Encoding")
    if answer.status == 204 or framing is not None:
        return True
    # Through a proxy that speaks HTTP/1.0, a body ends with its connection.
    return answer.version == 10 and answer.fp.peek(1) != b""


def as_json(body: Any) -> bytes:
    try:
        return json.dumps(body, allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise AirlockError(f"The request cannot be sent as JSON: {error}.") from error


def in_query(value: Any) -> Any:
    return str(value).lower() if isinstance(value, bool) else value


def has_own_key(body: Any) -> bool:
    return isinstance(body, dict) and cast(Dict[str, Any], body).get("idempotency_key") is not None


def checked_key(key: Optional[str]) -> Optional[str]:
    """The error does not show the key."""
    if key is None or re.fullmatch(r"[\x21-\x7e]+", key):
        return key
    raise AirlockError(
        "The API key is empty or has a character that no header can carry, "
        "such as a space, a line break or …: copy it again."
    )


def checked_tenant(tenant: Optional[str]) -> Optional[str]:
    """An empty variable must not become a request for the key's own tenant."""
    if tenant is None or re.fullmatch(r"\*|[a-z0-9][a-z0-9-]{0,62}", tenant):
        return tenant
    raise AirlockError(
        f"{tenant!r} is not the name of a tenant: it has a to z, 0 to 9 and -, or is * for all."
    )


def problem_error(
    status: int, headers: Mapping[str, str], body: bytes, way: str
) -> ProblemError:
    """The error that a refusal is raised as.

    :param way: What a message says of a proxy.
    """
    text = body.decode("utf-8", "replace")
    headers = {name.lower(): value for name, value in headers.items()}
    problem = _as_problem(text)
    retry_after_s = _number(headers.get("retry-after"))
    if problem is None:
        is_page = headers.get("content-type", "").startswith("text/html")
        words = "the address answered with a page: check it" if is_page else text[:200]
        message = f"HTTP {status}{way} without a problem of Airlock's: {words}"
        return ProblemError(status, message, None, retry_after_s)
    faults = [f"{fault.path}: {fault.message}" for fault in problem.errors or []]
    message = "\n  ".join([problem.detail, *(one for one in faults if one not in problem.detail)])
    # An older client does not know a newer service's codes.
    error = problem_classes.get(problem.code, ProblemError)
    return error(status, message, problem, retry_after_s)


def _as_problem(text: str) -> Optional[Problem]:
    try:
        body: Any = json.loads(text)
    except ValueError:
        return None
    if isinstance(body, dict) and {"code", "detail", "correlation_id"} <= body.keys():
        return shape(Problem, cast(Dict[str, Any], body))
    return None


def _number(text: Optional[str]) -> Optional[float]:
    try:
        return None if text is None else float(text)
    except ValueError:
        return None
