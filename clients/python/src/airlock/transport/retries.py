"""Decides when a request is sent again."""

from __future__ import annotations

import random
import re
from typing import Mapping, Optional

from ..errors import AirlockError, ConnectionError, ProblemError

# Requests that make jobs, files or sessions. With an idempotency key, a repeat makes no second one.
_TAKES_KEY = re.compile(r"/execute/(async|batch)$|/jobs/[^/]+/(rerun|fork)$|^/(files|sessions)$")
# Requests that change nothing when they are repeated.
_CAN_COME_TWICE = re.compile(
    r"^(POST (.*/cancel|/jobs/[^/]+/tool-calls/[^/]+)|DELETE /sessions/[^/]+)$"
)
_FIRST_S = 0.25
_LONGEST_S = 8.0
_LONGEST_ASKED_S = 60.0


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
