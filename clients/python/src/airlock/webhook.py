"""Deliveries of the service: Standard Webhooks, v1."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import time
from typing import Any, Dict, Mapping, Optional, Sequence, Union

from .errors import AirlockError


class WebhookError(AirlockError):
    """The delivery is not from the service, or too old: answer it with 400."""


def verify_webhook(
    body: Union[bytes, str],
    headers: Mapping[str, str],
    secrets: Union[str, Sequence[str]],
    *,
    tolerance_s: float = 300,
    now: Optional[float] = None,
) -> Dict[str, Any]:
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
    except ValueError:
        age_s = float("inf")
    if age_s > tolerance_s:
        raise WebhookError(f"webhook-timestamp {timestamp} is more than {tolerance_s} s away.")
    data = body.encode() if isinstance(body, str) else body
    signed = f"{given['webhook-id']}.{timestamp}.".encode() + data
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
            if hmac.compare_digest(expected, signature.encode("utf-8", "surrogatepass")):
                return json.loads(data)
    raise WebhookError("No signature in webhook-signature is made with a secret given here.")


def _key_of(secret: str) -> bytes:
    text = secret[len("whsec_") :] if secret.startswith("whsec_") else secret
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise WebhookError("A secret is not whsec_ and Base64.") from None
