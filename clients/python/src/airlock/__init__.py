"""A client of Airlock, which runs untrusted Python in single-use containers.

    client = airlock.connect("http://127.0.0.1:8080", key="YOUR-KEY")
    print(client.run("print(6 * 7)").stdout)

``help(airlock.Airlock)`` has all calls. ``airlock.connect_async`` is the same for asyncio.
"""

from .aio import AsyncAirlock as AsyncAirlock
from .aio import AsyncOpenSession as AsyncOpenSession
from .aio import connect_async as connect_async
from .client import Airlock as Airlock
from .client import connect as connect
from .errors import *  # noqa: F403
from .problems import *  # noqa: F403
from .record import JobEvent as JobEvent
from .record import JobEventData as JobEventData
from .record import Record as Record
from .sessions import OpenSession as OpenSession
from .transport import Cancel as Cancel
from .types import *  # noqa: F403
from .webhook import WebhookError as WebhookError
from .webhook import verify_webhook as verify_webhook

__version__ = "0.1.0"
