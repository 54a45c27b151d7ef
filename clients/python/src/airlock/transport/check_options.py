"""Options that would fail, or mean something else, once they are sent."""

from __future__ import annotations

import re
from typing import Optional

from ..errors import AirlockError


def checked_key(key: Optional[str]) -> Optional[str]:
    """The error does not show the key."""
    if key is None or re.fullmatch(r"[\x21-\x7e]+", key):
        return key
    raise AirlockError(
        "The API key is empty or has a character that no header can carry, "
        "such as a space, a line break or …: copy it again."
    )


def checked_tenant(tenant: Optional[str]) -> Optional[str]:
    """An empty variable must not become a request for the key's own tenant."""
    if tenant is None or re.fullmatch(r"\*|[a-z0-9][a-z0-9-]{0,62}", tenant):
        return tenant
    raise AirlockError(
        f"{tenant!r} is not the name of a tenant: it has a to z, 0 to 9 and -, or is * for all."
    )
