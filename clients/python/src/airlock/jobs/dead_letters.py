"""Dead letters."""

from __future__ import annotations

from typing import Iterator, Optional

from ..record import shape
from ..transport.part import Part
from ..types import DeadLetter, DeadLetterStats, ExecutionErrorType


class DeadLetters(Part):
    """Asynchronous jobs that failed, with what was submitted."""

    def list(
        self, *, error_type: Optional[ExecutionErrorType] = None, limit: Optional[int] = None
    ) -> Iterator[DeadLetter]:
        """The newest first. They are fetched page by page, as they are read.

        :param limit: So many at most.
        """
        for item in self._transport.pages("/dlq", {"error_type": error_type}, "id", limit):
            yield shape(DeadLetter, item)

    def stats(self) -> DeadLetterStats:
        """How many there are, of each type of error."""
        return shape(DeadLetterStats, self._transport.send("GET", "/dlq/stats"))

    def delete(self, id: int) -> None:
        """Removes an entry. The record of its job stays."""
        self._transport.send("DELETE", f"/dlq/{id}")
