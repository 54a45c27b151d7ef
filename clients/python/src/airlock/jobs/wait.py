"""Waiting for the end of a job."""

from __future__ import annotations

import math
import time
from ..transport.cancel import Cancel
from ..errors import AirlockError
from .follow import Callbacks, follow
from ..problems import WaitTimeoutError
from ..record import shape
from ..transport.retries import is_worth_repeating, pause_s
from ..transport.transport import Transport, step
from ..types import ExecutionRecord

# How much later than asked the service's own answer may come.
_SLACK_S = 2
# Shorter than the time that proxies allow for an answer.
_ROUND_S = 25
# How long an interrupted run may take to cancel its job; twice as long if the service does not answer.
_CANCEL_S = 3


def wait(
    transport: Transport, job_id: str, callbacks: Callbacks, wait_s: float
) -> ExecutionRecord:
    """See :meth:`airlock.Airlock.wait`."""
    path = f"/jobs/{step(job_id)}/result"
    until = time.monotonic() + wait_s
    follow(transport, step(job_id), until, callbacks)
    is_endless = wait_s == math.inf
    while True:
        left_s = min(_ROUND_S, max(0, until - time.monotonic()))
        query = {"wait": "true", "timeout": math.ceil(left_s), "view": "full"}
        silent_s = transport.timeout and left_s + transport.timeout
        if not is_endless:
            # A silent service gets no more time than that, however many tries it would be.
            silent_s = left_s + min(transport.timeout or math.inf, _SLACK_S)
        try:
            retries = None if is_endless else 0
            answer = transport.change(None, retries, silent_s).send("GET", path, query)
            return shape(ExecutionRecord, answer)
        except WaitTimeoutError as error:
            if time.monotonic() >= until:
                message = f"Job {job_id} did not end within {wait_s:g} s. The job goes on."
                raise WaitTimeoutError(error.status, message, error.problem) from None
        except AirlockError as error:
            is_last = is_endless or time.monotonic() >= until
            if is_last or not is_worth_repeating(error, True):
                raise
            transport.cancel.sleep(min(pause_s(1, error), max(0, until - time.monotonic())))


def run_to_end(
    transport: Transport, job_id: str, callbacks: Callbacks, wait_s: float
) -> ExecutionRecord:
    """The same, but cancels the job if the call is interrupted, or a callback raises."""
    try:
        return wait(transport, job_id, callbacks, wait_s)
    except BaseException as error:
        if isinstance(error, AirlockError):
            error.job_id = job_id
        if not isinstance(error, AirlockError) or transport.cancel.is_set:
            _cancel_quickly(transport, job_id)
        raise


def _cancel_quickly(transport: Transport, job_id: str) -> None:
    try:
        transport.change(Cancel(), 1, _CANCEL_S).send("POST", f"/jobs/{step(job_id)}/cancel")
    except AirlockError:
        # It has ended, or the service is away.
        pass
