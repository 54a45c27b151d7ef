"""What requests carry."""

from __future__ import annotations

import json
from typing import Any, Dict, cast

from ..errors import AirlockError


def as_json(body: Any) -> bytes:
    try:
        return json.dumps(body, allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise AirlockError(f"The request cannot be sent as JSON: {error}.") from error


def in_query(value: Any) -> Any:
    return str(value).lower() if isinstance(value, bool) else value


def has_own_key(body: Any) -> bool:
    return isinstance(body, dict) and cast(Dict[str, Any], body).get("idempotency_key") is not None
