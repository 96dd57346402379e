"""An order from the command line to a service, from signing in to what is said of its end."""

import asyncio
import base64
import os
import sys
from collections.abc import Sequence

from arachne.cli.clients import access
from arachne.cli.extract_inputs import STDIN, Input
from arachne.cli.extract_journal import Journal
from arachne.cli.extract_progress import display
from arachne.cli.extract_remote import Order, RemoteRun
from arachne.client import ClientSettings
from arachne.client.refusals import read_mapping
from arachne.client.sources import is_url
from arachne.errors import ArachneError, SetupError
from arachne.schemas.submission import SubmissionTerms
from arachne.strict_json import parse


def sign_in() -> ClientSettings:
    """Where the service is and what to sign in with.

    Raises:
        SetupError: there is nothing; says what to set.
    """
    settings = ClientSettings.load()
    if not settings.has_credentials:
        raise SetupError(
            "Set ARACHNE_TOKEN, or ARACHNE_CLIENT_ID and ARACHNE_CLIENT_SECRET; ARACHNE_URL names where. "
            "Or add --local to read on this machine, without a service."
        )
    settings.check()
    return settings


def describe(
    names: Sequence[str], images: Sequence[Input], terms: SubmissionTerms, settings: ClientSettings
) -> dict[str, object]:
    """What makes a command the same as another: what is named, how it is to be read, where, and by whom."""
    stdin = [one.identify() for one in images if one.name == STDIN]
    return {
        "url": settings.url,
        "client": settings.client_id if settings.token is None else _holder(settings.token.get_secret_value()),
        "names": [one if one == STDIN or is_url(one) else os.path.abspath(one) for one in names],  # noqa: PTH100  # `..`
        "stdin": stdin,
        "terms": terms.model_dump(mode="json"),
    }


def fulfil(order: Order, settings: ClientSettings) -> int:
    """The number of images that failed; all others are in the order's sink, or where nobody waits, jobs are printed.

    Raises:
        ArachneError: the service can't be reached, or takes none of it.
    """
    with display(len(order.images), "sent", *(["read"] if order.wait else [])) as shown:
        run = RemoteRun(order, shown)
        try:
            with access():
                asyncio.run(run.work(settings))
        except KeyboardInterrupt:
            shown.say(f"arachne: Interrupted{_standing(run, order.journal)}")
            raise
        except ArachneError:
            if run.under_way or run.read:
                shown.say(f"arachne: Ended{_standing(run, order.journal)}")
            raise
    if not order.wait:
        sys.stdout.write("".join(f"{job_id}\n" for job_id in run.jobs))
    elif not run.failed and order.terms.options.cache != "use":
        order.journal.forget()  # who wants it read anew wants that the next time too
    return run.failed


def _standing(run: RemoteRun, journal: Journal) -> str:
    told = f" with {run.read} of {run.total} images read"
    if run.under_way:
        others = "the other that was" if run.under_way == 1 else f"the {run.under_way} others that were"
        told += f". The service keeps reading {others} sent"
    return told + (". The same command goes on from here, within 24 hours." if journal.is_kept else ".")


def _holder(token: str) -> list[object]:
    """Whom an access token speaks for, as far as can be seen: the next one speaks for the same."""
    try:
        payload = token.split(".")[1]
        claims = read_mapping(parse(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4))))
        return [claims.get(name) for name in ("iss", "account", "sub")]
    except (ValueError, IndexError):
        return []
