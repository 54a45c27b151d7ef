"""Deliveries of the service: Standard Webhooks, v1."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from typing import Mapping, Optional, Sequence, Union

from .errors import AirlockError
from .record import shape
from .types import WebhookEvent


class WebhookError(AirlockError):
    """The delivery is not from the service, or too old: answer it with 400."""


def verify_webhook(
    body: Union[bytes, str],
    headers: Mapping[str, str],
    secrets: Union[str, Sequence[str]],
    *,
    tolerance_s: float = 300,
    now: Optional[float] = None,
) -> WebhookEvent:
    """Checks the signature of a delivery, and parses it.

    :param body: As it came: a body that was parsed and written again has another signature.
    :param secrets: The ``whsec_`` secrets that are valid now; two while they rotate.
    """
    given = {name.lower(): value for name, value in headers.items()}
    for name in ("webhook-id", "webhook-timestamp", "webhook-signature"):
        if not given.get(name):
            raise WebhookError(f"The header {name} is missing.")
    timestamp = given["webhook-timestamp"]
    try:
        age_s = abs((time.time() if now is None else now) - int(timestamp))
    except (ValueError, OverflowError):
        age_s = float("inf")
    if age_s > tolerance_s:
        raise WebhookError(f"webhook-timestamp {timestamp} is more than {tolerance_s} s away.")
    data = _encode(body) if isinstance(body, str) else body
    signed = _encode(f"{given['webhook-id']}.{timestamp}.") + data
    signatures = [
        signature
        for version, _, signature in (
            part.partition(",") for part in given["webhook-signature"].split(" ")
        )
        if version == "v1"
    ]
    for secret in [secrets] if isinstance(secrets, str) else secrets:
        expected = base64.b64encode(hmac.new(_key_of(secret), signed, hashlib.sha256).digest())
        for signature in signatures:
            if hmac.compare_digest(expected, _encode(signature)):
                return shape(WebhookEvent, json.loads(data))
    raise WebhookError("No signature in webhook-signature is made with a secret given here.")


def _encode(text: str) -> bytes:
    """Text that is not Unicode is no error here: no signature matches it."""
    return text.encode("utf-8", "surrogatepass")


def _key_of(secret: str) -> bytes:
    text = secret[len("whsec_") :] if secret.startswith("whsec_") else secret
    try:
        key = base64.b64decode(text, validate=True)
    except ValueError:
        key = b""
    # With an empty key, anybody could sign.
    if not key:
        raise WebhookError("A secret is empty, or not whsec_ and Base64.")
    return key
