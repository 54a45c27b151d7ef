"""From a refused request to the error that it is raised as."""

from __future__ import annotations

import json
from typing import Any, Dict, Mapping, Optional, cast

from ..errors import ProblemError
from ..problems import problem_classes
from ..record import shape
from ..types import Problem


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
