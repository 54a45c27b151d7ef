"""What calls raise; each problem code of the service has a subclass in problems.py."""

from __future__ import annotations

import builtins
from typing import Any, Optional, Tuple

from .types import Problem, ProblemCode

__all__ = ["AirlockError", "Cancelled", "ConnectionError", "NoAnswerError", "ProblemError"]


class AirlockError(Exception):
    """Every error of this client."""

    #: The job that the error is about, if it is known. It may still run.
    job_id: Optional[str] = None


class ConnectionError(AirlockError, builtins.ConnectionError):
    """The service could not be reached, or the connection broke, also after the retries."""

    #: Whether another try would end the same.
    is_lasting = False


def lasting(message: str) -> ConnectionError:
    error = ConnectionError(message)
    error.is_lasting = True
    return error


class NoAnswerError(ConnectionError):
    """The service was silent for the time-out, also after the retries."""


class Cancelled(AirlockError):
    """The call was cancelled: its socket is closed."""


class ProblemError(AirlockError):
    """The service refused the request. Each problem code has a subclass."""

    def __init__(
        self,
        status: int,
        message: str,
        problem: Optional[Problem] = None,
        retry_after_s: Optional[float] = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        #: What the service said. If it said nothing, a proxy in front of it answered.
        self.problem = problem
        #: Seconds after which the same request may succeed.
        self.retry_after_s = retry_after_s
        if problem:
            self.job_id = problem.job_id or problem.existing_job_id

    def __reduce__(self) -> Tuple[Any, ...]:
        """Pickles with the arguments of this class: those of Exception are only the message."""
        given = (self.status, str(self), self.problem, self.retry_after_s)
        return type(self), given, self.__dict__

    @property
    def code(self) -> Optional[ProblemCode]:
        return self.problem.code if self.problem else None

    @property
    def correlation_id(self) -> Optional[str]:
        """Identifies the request in the service's log."""
        return self.problem.correlation_id if self.problem else None
