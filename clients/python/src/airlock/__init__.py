"""A client of Airlock, which runs untrusted Python in single-use containers."""

from .aio import AsyncAirlock as AsyncAirlock
from .aio import connect_async as connect_async
from .cancel import Cancel as Cancel
from .client import Airlock as Airlock
from .client import connect as connect
from .errors import *  # noqa: F403
from .events import JobEvent as JobEvent
from .events import JobEventData as JobEventData
from .problems import *  # noqa: F403
from .record import Record as Record
from .types import *  # noqa: F403
from .webhook import WebhookError as WebhookError
from .webhook import verify_webhook as verify_webhook
