"""API keys, tenants and their limits, and the log of what was changed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Iterator, List, Optional, Sequence

from .record import shape
from .transport.part import Part
from .transport.transport import Transport, step
from .types import ApiKey, AuditAction, AuditEntry, NewApiKey, Scope, Tenant, TenantLimits

if TYPE_CHECKING:
    from typing_extensions import Unpack


class Keys(Part):
    """API keys. Needs a key with the scope ``admin``."""

    def create(
        self,
        name: str,
        scopes: Sequence[Scope],
        *,
        tenant: Optional[str] = None,
        expires_in_s: Optional[int] = None,
    ) -> NewApiKey:
        """Makes a key. Its ``key`` is in this answer only: the service keeps a hash.

        :param name: For people: who uses it.
        :param scopes: What it may do; no more than the key of this client may.
        :param tenant: Whose records it sees; it is made if it is new. Default: the tenant of this client.
        :param expires_in_s: Seconds until it is void. Default: never.
        """
        body = {"name": name, "scopes": list(scopes), "tenant": tenant, "expires_in_s": expires_in_s}
        given = {field: value for field, value in body.items() if value is not None}
        return shape(NewApiKey, self._transport.send("POST", "/keys", body=given))

    def list(self, *, tenant: Optional[str] = None) -> List[ApiKey]:
        """All of them, or those of one tenant; also those that are void, without the keys themselves."""
        answer = self._transport.send("GET", "/keys", {"tenant": tenant})
        return [shape(ApiKey, one) for one in answer["keys"]]

    def rotate(self, id: str, *, old_valid_s: Optional[int] = None) -> NewApiKey:
        """Makes a new key in the place of one. Its id, tenant and limits stay.

        :param old_valid_s: Seconds for which the old key holds too. Default: a day.
        """
        body = {} if old_valid_s is None else {"old_valid_s": old_valid_s}
        answer = self._transport.send("POST", f"/keys/{step(id)}/rotate", body=body)
        return shape(NewApiKey, answer)

    def revoke(self, id: str) -> ApiKey:
        """Makes a key void for good."""
        return shape(ApiKey, self._transport.send("POST", f"/keys/{step(id)}/revoke"))


class Tenants(Part):
    """Who owns records, and what each may use. Needs a key with the scope ``admin``."""

    def list(self) -> List[Tenant]:
        """All of them, with their limits and what they use."""
        answer = self._transport.send("GET", "/tenants")
        return [shape(Tenant, one) for one in answer["tenants"]]

    def get(self, name: str) -> Tenant:
        """Its limits, and what it uses."""
        return shape(Tenant, self._transport.send("GET", f"/tenants/{step(name)}"))

    def set_limits(self, name: str, **limits: Unpack[TenantLimits]) -> Tenant:
        """Replaces all limits of a tenant: what is not named here has none. Makes the tenant if it is new.

        :param limits: ``max_queued``, ``max_running``, ``max_stored_bytes``, ``max_cpu_s_day``,
            ``max_requests``.
        """
        return shape(Tenant, self._transport.send("PUT", f"/tenants/{step(name)}", body=limits))


def audit(
    transport: Transport,
    action: Optional[AuditAction],
    tenant: Optional[str],
    limit: Optional[int],
) -> Iterator[AuditEntry]:
    query = {"action": action, "tenant": tenant}
    for item in transport.pages("/audit", query, "id", limit):
        yield shape(AuditEntry, item)
