"""A client of Airlock, which runs untrusted Python in single-use containers.

    client = airlock.connect("http://127.0.0.1:8080", key="YOUR-KEY")
    print(client.run("print(6 * 7)").stdout)

``help(airlock.Airlock)`` has all calls. ``airlock.connect_async`` is the same for asyncio.
"""

from .aio import AsyncAirlock as AsyncAirlock
from .aio import connect_async as connect_async
from .aio_sessions import AsyncOpenSession as AsyncOpenSession
from .cancel import Cancel as Cancel
from .client import Airlock as Airlock
from .client import connect as connect
from .errors import *  # noqa: F403
from .events import JobEvent as JobEvent
from .events import JobEventData as JobEventData
from .problems import *  # noqa: F403
from .record import Record as Record
from .sessions import OpenSession as OpenSession
from .types import *  # noqa: F403
from .webhook import WebhookError as WebhookError
from .webhook import verify_webhook as verify_webhook
