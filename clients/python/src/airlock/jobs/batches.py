"""Batches of jobs."""

from __future__ import annotations

from ..record import shape
from ..transport.part import Part
from ..transport.transport import step
from ..types import Batch


class Batches(Part):
    """The state of batches, by ``batch_id``. ``Airlock.list`` has their jobs."""

    def get(self, batch_id: str) -> Batch:
        """How many of its jobs have each status."""
        return shape(Batch, self._transport.send("GET", f"/batches/{step(batch_id)}"))

    def cancel(self, batch_id: str) -> Batch:
        """Cancels the jobs of a batch that have not ended."""
        return shape(Batch, self._transport.send("POST", f"/batches/{step(batch_id)}/cancel"))
