"""Requests: retries, time-outs, idempotency keys, cancelling."""

from __future__ import annotations

import copy
import http.client
import io
import json
import math
import re
import socket
import ssl
import uuid
from contextlib import contextmanager
from typing import (
    Any,
    BinaryIO,
    Callable,
    Dict,
    Generator,
    Iterator,
    Mapping,
    Optional,
    Tuple,
    Union,
    cast,
)
from urllib.parse import quote, urlencode

from .cancel import Cancel
from .check_options import checked_key, checked_tenant
from .connection import Address
from .encode import as_json, has_own_key, in_query
from ..errors import (
    AirlockError,
    Cancelled,
    ConnectionError,
    NoAnswerError,
    lasting,
)
from .refusal import problem_error
from .retries import is_repeatable, is_worth_repeating, pause_s, takes_key

Body = Union[bytes, BinaryIO, None]
#: An answer, and its socket.
Opened = Tuple[http.client.HTTPResponse, socket.socket]

_PAGE_ITEMS = 100


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


def _has_whole_head(answer: http.client.HTTPResponse) -> bool:
    """Detects headers that break off: http.client takes them for complete, and the body for empty."""
    framing = answer.headers.get("Content-Length") or answer.headers.get("Transfer-Encoding")
    if answer.status == 204 or framing is not None:
        return True
    # Through a proxy that speaks HTTP/1.0, a body ends with its connection.
    return answer.version == 10 and answer.fp.peek(1) != b""
