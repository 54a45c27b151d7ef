"""A class for each problem code. Written by `npm run docs` from the OpenAPI document."""

from typing import Dict, Type

from .errors import ProblemError
from .types import ProblemCode

__all__ = [
    "InvalidRequestError", "UnauthorizedError", "ForbiddenError", "NotFoundError",
    "MethodNotAllowedError", "WaitTimeoutError", "ConflictError", "SessionEndedError",
    "LeaseLostError", "LengthRequiredError", "TooLargeError", "RangeNotSatisfiableError",
    "TimeoutTooLongError", "LanguageUnavailableError", "BatchTooLargeError",
    "FilesTooLargeError", "BuildFailedError", "RateLimitedError", "QuotaExceededError",
    "TooManySessionsError", "HeadersTooLargeError", "InternalError", "EngineFailedError",
    "UnavailableError", "problem_classes",
]


class InvalidRequestError(ProblemError):
    pass


class UnauthorizedError(ProblemError):
    pass


class ForbiddenError(ProblemError):
    pass


class NotFoundError(ProblemError):
    pass


class MethodNotAllowedError(ProblemError):
    pass


class WaitTimeoutError(ProblemError):
    pass


class ConflictError(ProblemError):
    pass


class SessionEndedError(ProblemError):
    pass


class LeaseLostError(ProblemError):
    pass


class LengthRequiredError(ProblemError):
    pass


class TooLargeError(ProblemError):
    pass


class RangeNotSatisfiableError(ProblemError):
    pass


class TimeoutTooLongError(ProblemError):
    pass


class LanguageUnavailableError(ProblemError):
    pass


class BatchTooLargeError(ProblemError):
    pass


class FilesTooLargeError(ProblemError):
    pass


class BuildFailedError(ProblemError):
    pass


class RateLimitedError(ProblemError):
    pass


class QuotaExceededError(ProblemError):
    pass


class TooManySessionsError(ProblemError):
    pass


class HeadersTooLargeError(ProblemError):
    pass


class InternalError(ProblemError):
    pass


class EngineFailedError(ProblemError):
    pass


class UnavailableError(ProblemError):
    pass


problem_classes: Dict[ProblemCode, Type[ProblemError]] = {
    "invalid_request": InvalidRequestError,
    "unauthorized": UnauthorizedError,
    "forbidden": ForbiddenError,
    "not_found": NotFoundError,
    "method_not_allowed": MethodNotAllowedError,
    "wait_timeout": WaitTimeoutError,
    "conflict": ConflictError,
    "session_ended": SessionEndedError,
    "lease_lost": LeaseLostError,
    "length_required": LengthRequiredError,
    "too_large": TooLargeError,
    "range_not_satisfiable": RangeNotSatisfiableError,
    "timeout_too_long": TimeoutTooLongError,
    "language_unavailable": LanguageUnavailableError,
    "batch_too_large": BatchTooLargeError,
    "files_too_large": FilesTooLargeError,
    "build_failed": BuildFailedError,
    "rate_limited": RateLimitedError,
    "quota_exceeded": QuotaExceededError,
    "too_many_sessions": TooManySessionsError,
    "headers_too_large": HeadersTooLargeError,
    "internal": InternalError,
    "engine_failed": EngineFailedError,
    "unavailable": UnavailableError,
}
