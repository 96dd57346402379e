"""`arachne scheduler`: sends the periodic messages. One process; two would send everything twice."""

import logging
import signal
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from dramatiq import Actor
from periodiq import Scheduler

from arachne.actors.broker import UNSENT, make_broker
from arachne.actors.maintenance import declare_maintenance
from arachne.settings import Settings

log = logging.getLogger(__name__)


class PatientScheduler(Scheduler):  # type: ignore[misc]  # published without types
    """periodiq's scheduler, which would die with Redis; what can't be sent is missed, and the next one comes."""

    def send_actors(self, actors: Sequence[Actor[[], Any]], now: datetime) -> None:
        """Send what is due now."""
        try:
            super().send_actors(actors, now)
        except UNSENT as error:
            log.warning("Redis takes no periodic messages, workers look by themselves meanwhile: %s", error)
        except Exception:
            log.exception("periodic messages can't be sent; workers look by themselves meanwhile")


def run(settings: Settings) -> None:
    """Send the periodic messages until SIGTERM or SIGINT.

    Raises:
        SetupError: there is no usable REDIS_URL.
    """
    broker = make_broker(settings)
    scheduler = PatientScheduler(actors=declare_maintenance(broker, None))
    former = {number: signal.signal(number, _leave) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        scheduler.schedule()
        scheduler.loop()
    except _Leaving:
        return
    finally:
        signal.alarm(0)
        for number, handler in former.items():
            signal.signal(number, handler)
        broker.client.close()


class _Leaving(BaseException):
    """Raised by the signal handler to get out of the scheduler's endless wait."""


def _leave(*_: object) -> None:
    raise _Leaving
