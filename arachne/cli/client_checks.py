"""What `arachne doctor` looks at for commands that speak to a service: its address, the clocks and the credentials."""

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

import httpx2

from arachne.cli.clients import open_client
from arachne.cli.finding import Check, first_line
from arachne.client import ClientSettings
from arachne.client.connection import proxies_usable
from arachne.errors import ArachneError, InsufficientScope, SetupError

_TIMEOUT_S = 5.0
_SKEW_S = 60.0  # receivers of webhooks refuse five minutes; a token may live for less
_GET_SOME = "`arachne account create NAME --shell`, run where the service is, prints some."


def examine_client(settings: ClientSettings, running_here: str | None = None) -> Iterator[Check]:
    """Every finding, one after the other; nothing is called where nothing says that there is a service.

    `running_here` is the URL of a service that is known to run on this machine.
    """
    named = "url" in settings.model_fields_set
    if not named and not settings.has_credentials:
        yield Check("client", "ok", "neither ARACHNE_URL nor credentials are set: no service is called from here")
        return
    where = settings.url if named else f"{settings.url} (ARACHNE_URL is not set)"
    asked_at_s = time.time()
    try:
        settings.check_url()
        with proxies_usable():
            answer = httpx2.get(
                f"{settings.url.rstrip('/')}/healthz", timeout=_TIMEOUT_S, trust_env=not settings.is_local
            )
    except SetupError as error:
        yield Check("service url", "failed", where, error.message)
    except httpx2.HTTPError as error:
        yield Check("service url", "failed", f"{where}: {first_line(error)}", _mend_url(settings, running_here))
    else:
        yield _service(where, answer)
        yield _clock(answer, (asked_at_s + time.time()) / 2)
        yield _credentials(settings)


def _mend_url(settings: ClientSettings, running_here: str | None) -> str:
    if running_here is not None and running_here != settings.url.rstrip("/"):
        return f"The service of this data folder is somewhere else: export ARACHNE_URL={running_here}"
    if settings.is_local:
        return "Start the service with `arachne up`, or set ARACHNE_URL to where it is."
    return "Check ARACHNE_URL, the way there (DNS, firewall, HTTPS_PROXY), and that the service runs."


def _service(where: str, answer: httpx2.Response) -> Check:
    if answer.status_code == 200 and answer.headers.get("X-Request-Id"):
        return Check("service url", "ok", f"{where} answers")
    mend = "Set ARACHNE_URL to the service itself, without a path; a proxy before it has to pass /healthz on."
    return Check("service url", "failed", f"{where} answers {answer.status_code}, and not as the service does", mend)


def _clock(answer: httpx2.Response, asked_at_s: float) -> Check:
    """Whether this machine's clock goes with the service's: times in tokens and signatures are compared with it."""
    try:
        told = parsedate_to_datetime(answer.headers["Date"]).astimezone(UTC)
    except (KeyError, ValueError):
        return Check("clock", "warning", "the service doesn't tell its time", "Have the proxy before it pass Date on.")
    ahead_s = (datetime.fromtimestamp(asked_at_s, UTC) - told).total_seconds()
    found = f"{abs(ahead_s):.0f} s {'ahead of' if ahead_s > 0 else 'behind'} the service's"
    if abs(ahead_s) > _SKEW_S:
        mend = "Set this clock, or the service's, by NTP: webhooks and tokens are refused by their times."
        return Check("clock", "warning", found, mend)
    return Check("clock", "ok", "goes with the service's")


def _credentials(settings: ClientSettings) -> Check:
    """Whether the service lets this client in; reads one job at most."""
    if not settings.has_credentials:
        return Check("credentials", "warning", "none are set", f"Set ARACHNE_CLIENT_ID and _SECRET: {_GET_SOME}")
    kind = "ARACHNE_TOKEN" if settings.token is not None else f"client {settings.client_id}"
    try:
        with open_client(settings) as client:
            client.call("GET", "/api/extract/image-jobs", params={"limit": 1})
    except ArachneError as error:
        if isinstance(error.__cause__, InsufficientScope):
            return Check("credentials", "ok", f"{kind} is let in, without the scope vision:read")
        return Check("credentials", "failed", kind, error.message)
    return Check("credentials", "ok", f"{kind} is let in")
