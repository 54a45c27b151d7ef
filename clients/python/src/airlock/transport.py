"""Requests: retries, time-outs, idempotency keys, cancelling."""

from __future__ import annotations

import http.client
import io
import json
import random
import re
import socket
import ssl
import uuid
from contextlib import contextmanager
from typing import Any, BinaryIO, Callable, Dict, Generator, Mapping, Optional, Union, cast
from urllib.parse import urlencode, urlsplit

from .cancel import Cancel
from .errors import (
    AirlockError,
    Cancelled,
    ConnectionError,
    NoAnswerError,
    ProblemError,
)
from .refusal import problem_error

Body = Union[bytes, BinaryIO, None]

# Requests that make jobs or files. With an idempotency key, a repeat makes no second one.
_TAKES_KEY = re.compile(r"/execute/(async|batch)$|/jobs/[^/]+/(rerun|fork)$|^/files$")
# Requests that change nothing when they are repeated.
_CAN_COME_TWICE = re.compile(r"/cancel$")
_FIRST_S = 0.25
_LONGEST_S = 8.0
_LONGEST_ASKED_S = 60.0


def pause_s(tries: int, retry_after_s: Optional[float] = None) -> float:
    """How long to wait before the next try. Chance keeps clients that failed together apart."""
    if retry_after_s is not None:
        return min(retry_after_s, _LONGEST_ASKED_S) + random.random() * _FIRST_S
    return min(_FIRST_S * 2 ** (tries - 1), _LONGEST_S) * (0.5 + random.random() / 2)


class Transport:
    """Where the service is, and how to talk to it."""

    def __init__(
        self, url: str, key: Optional[str], retries: int, timeout: float, cancel: Cancel
    ) -> None:
        # A page of the console stands for its service.
        self.url = re.sub(r"(?<=[^/])/console(/.*)?$", "", url).rstrip("/")
        if key is not None and not re.fullmatch(r"[\x21-\x7e]+", key):
            raise AirlockError(
                "The API key is empty or has a character that no header can carry, "
                "such as a space, a line break or …: copy it again."
            )
        self.key = key
        self.retries = retries
        self.timeout = timeout
        self.cancel = cancel
        try:
            parts = urlsplit(self.url)
            host, self._port = parts.hostname, parts.port
        except ValueError as error:
            raise AirlockError(f"{url} is no address: {error}.") from None
        if parts.scheme not in ("http", "https") or not host:
            raise AirlockError(f"{url} is no address: it begins with http:// or https://.")
        self._host = host
        self._path = parts.path
        self._tls = ssl.create_default_context() if parts.scheme == "https" else None

    def change(
        self,
        cancel: Optional[Cancel] = None,
        retries: Optional[int] = None,
        timeout: Optional[float] = None,
    ) -> Transport:
        return Transport(
            self.url,
            self.key,
            self.retries if retries is None else retries,
            self.timeout if timeout is None else timeout,
            cancel or self.cancel,
        )

    def send(
        self,
        method: str,
        path: str,
        query: Optional[Mapping[str, Any]] = None,
        body: Any = None,
    ) -> Any:
        """Sends JSON and answers with parsed JSON."""
        data = None if body is None else json.dumps(body).encode()
        headers = {} if data is None else {"Content-Type": "application/json"}
        key = _key_in(body)
        if key is not None:
            headers["Idempotency-Key"] = key
        answer = self.send_bytes(method, path, query, data, headers)
        try:
            return json.loads(answer) if answer else None
        except ValueError:
            raise ConnectionError(
                f"{self.url} did not answer as Airlock does: check the address, and what is between."
            ) from None

    def send_bytes(
        self,
        method: str,
        path: str,
        query: Optional[Mapping[str, Any]] = None,
        body: Body = None,
        headers: Optional[Mapping[str, str]] = None,
    ) -> bytes:
        """Sends bytes and answers with the whole body."""

        def attempt(every: Mapping[str, str]) -> bytes:
            with self._answer(method, path, query, body, every) as answer:
                return answer.read()

        return self._try(method, path, headers, attempt)

    @contextmanager
    def open(
        self, path: str, query: Mapping[str, Any], headers: Mapping[str, str]
    ) -> Generator[http.client.HTTPResponse, None, None]:
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
    ) -> Any:
        every = self._headers(method, path, headers or {})
        is_safe = _is_repeatable(method, path, every)
        tries = 0
        while True:
            tries += 1
            try:
                with self._translated():
                    return attempt(every)
            except AirlockError as error:
                if tries > self.retries or not _is_worth_repeating(error, is_safe):
                    raise
                asked = error.retry_after_s if isinstance(error, ProblemError) else None
                self.cancel.sleep(pause_s(tries, asked))

    @contextmanager
    def _answer(
        self,
        method: str,
        path: str,
        query: Optional[Mapping[str, Any]],
        body: Body,
        headers: Mapping[str, str],
    ) -> Generator[http.client.HTTPResponse, None, None]:
        if self.cancel.is_set:
            raise Cancelled("The call was cancelled.")
        given = {name: value for name, value in (query or {}).items() if value is not None}
        target = self._path + path + (f"?{urlencode(given, doseq=True)}" if given else "")
        connection = self._connection()
        sock: Optional[socket.socket] = None
        try:
            connection.connect()
            sock = connection.sock
            self.cancel.watch(sock)
            if isinstance(body, io.IOBase):
                body.seek(0)
            try:
                connection.request(method, target, cast(Any, body), dict(headers))
            except (BrokenPipeError, ConnectionResetError):
                # A service that refuses an upload answers before it has all of it.
                pass
            answer = connection.getresponse()
            if not _has_whole_head(answer):
                raise http.client.IncompleteRead(b"")
            if answer.status >= 400:
                raise problem_error(answer.status, dict(answer.headers.items()), answer.read())
            yield answer
        finally:
            self.cancel.forget(sock)
            connection.close()

    def _connection(self) -> http.client.HTTPConnection:
        timeout = self.timeout or None
        if self._tls is None:
            return http.client.HTTPConnection(self._host, self._port, timeout=timeout)
        return http.client.HTTPSConnection(
            self._host, self._port, timeout=timeout, context=self._tls
        )

    def _headers(self, method: str, path: str, headers: Mapping[str, str]) -> Dict[str, str]:
        every = dict(headers)
        if self.key is not None:
            every["Authorization"] = f"Bearer {self.key}"
        if method == "POST" and _TAKES_KEY.search(path) and "Idempotency-Key" not in every:
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
                message = f"{self.url} did not answer within {self.timeout} s."
                raise NoAnswerError(message) from error
            wrong = isinstance(error, ssl.SSLError) and "WRONG_VERSION" in str(error)
            reason = "it does not speak TLS; try http://" if wrong else repr(error)
            raise ConnectionError(f"{self.url} could not be reached: {reason}") from error


def _has_whole_head(answer: http.client.HTTPResponse) -> bool:
    """http.client takes headers that break off for all of them, and then the body for empty."""
    framing = answer.headers.get("Content-Length") or answer.headers.get("Transfer-Encoding")
    return answer.status == 204 or framing is not None


def _key_in(body: Any) -> Optional[str]:
    return cast(Dict[str, Any], body).get("idempotency_key") if isinstance(body, dict) else None


def _is_repeatable(method: str, path: str, headers: Mapping[str, str]) -> bool:
    """Whether a second request does no harm if the first one arrived."""
    if method in ("GET", "HEAD"):
        return True
    return method == "POST" and ("Idempotency-Key" in headers or bool(_CAN_COME_TWICE.search(path)))


def _is_worth_repeating(error: AirlockError, is_safe: bool) -> bool:
    if isinstance(error, ConnectionError):
        return is_safe
    if not isinstance(error, ProblemError):
        return False
    # A proxy cannot say whether the service has the request.
    if error.problem is None:
        return is_safe and error.status in (429, 502, 503, 504)
    if error.code == "rate_limited":
        return True
    # If it names no job, nothing was stored.
    return error.code == "unavailable" and (is_safe or error.job_id is None)
