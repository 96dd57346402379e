"""`arachne webhooks …`: endpoints and deliveries of an account, and a receiver on this machine."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from arachne.cli.options import Json
from arachne.cli.output import print_record, print_rows, say

if TYPE_CHECKING:
    from arachne.cli.clients import Answer, Service
    from arachne.client import ClientSettings

_EPILOG = (
    "The service is found by ARACHNE_URL, http://127.0.0.1:8000 when unset, and signed in to with ARACHNE_TOKEN, "
    "or with ARACHNE_CLIENT_ID and ARACHNE_CLIENT_SECRET.\n\n"
    "Examples:\n\n"
    "arachne webhooks listen --forward-to http://127.0.0.1:3000/hooks\n\n"
    "arachne webhooks add https://example.com/hooks/arachne --event 'job.*'\n\n"
    "arachne webhooks deliveries ENDPOINT --status failed\n\n"
    "arachne webhooks recover ENDPOINT --since 2026-01-31T00:00:00Z --dry-run\n\n"
    "Exit codes: 0 done, 1 refused, or a test failed, 2 wrong usage, 3 no credentials, or refused ones, or no service "
    "there, 130 interrupted."
)

app = typer.Typer(
    help="Add, list and test webhook endpoints, see and repeat deliveries, receive here.",
    epilog=_EPILOG,
    no_args_is_help=True,
)
Endpoint = Annotated[str, typer.Argument(metavar="ENDPOINT", help="Id of the endpoint, whe_….")]
Message = Annotated[str, typer.Argument(metavar="MESSAGE", help="Id of the event, msg_….")]
Events = Annotated[list[str] | None, typer.Option("--event", help="Such as 'job.*'; may be repeated.")]
_COLUMNS = ["endpoint_id", "url", "events", "enabled", "disabled_reason"]
_DELIVERY = ["message_id", "event", "status", "attempt_count", "next_attempt_at", "reason", "created_at"]
_ATTEMPT = ["number", "at", "cause", "status_code", "ms", "failure", "response"]


@app.command()
def add(
    url: Annotated[str, typer.Argument(metavar="URL", help="Where events are sent.")],
    event: Events = None,
    description: Annotated[str | None, typer.Option(help="A note of yours.")] = None,
    json: Json = False,
) -> None:
    """Add an endpoint and print its secret, this once. Without --event it gets the ends of jobs."""
    wanted = {"url": url, "events": event or None, "description": description}
    with _connected() as remote:
        made = remote.call("POST", _path(), json={name: value for name, value in wanted.items() if value is not None})
    print_record(made if json else _pick(made, "endpoint_id", "url", "events", "secret"), as_json=json)
    say("Keep the secret: it is not shown again.")


@app.command("list")
def list_all(json: Json = False) -> None:
    """List the endpoints, oldest first."""
    with _connected() as remote:
        rows = list(remote.every(_path()))
    shown = rows if json else [{name: _joined(row[name]) for name in _COLUMNS} for row in rows]
    print_rows(shown, _COLUMNS, as_json=json)
    if not rows:
        say("There are none: `arachne webhooks add URL` makes one, `arachne webhooks listen` tries it here.")


@app.command()
def change(
    endpoint: Endpoint,
    *,
    url: Annotated[str | None, typer.Option(help="Where events are sent from now on.")] = None,
    event: Events = None,
    description: Annotated[str | None, typer.Option(help="A note of yours.")] = None,
    enabled: Annotated[
        bool | None, typer.Option("--enable/--disable", help="Whether it gets events; after a failure, start anew.")
    ] = None,
    json: Json = False,
) -> None:
    """Change an endpoint, or enable it again after it was disabled."""
    wanted = {"url": url, "events": event or None, "description": description, "enabled": enabled}
    changes = {name: value for name, value in wanted.items() if value is not None}
    if not changes:
        raise typer.BadParameter("Say what: --url, --event, --description, --enable or --disable.")
    with _connected() as remote:
        changed = remote.call("PATCH", _path(endpoint), json=changes)
    shown = changed if json else _pick(changed, *_COLUMNS)
    print_record(shown, as_json=json)


@app.command()
def remove(endpoint: Endpoint) -> None:
    """Remove an endpoint; what was not yet sent to it is not sent any more."""
    with _connected() as remote:
        remote.call("DELETE", _path(endpoint))
    say(f"{endpoint} is removed.")


@app.command()
def rotate(
    endpoint: Annotated[str, typer.Argument(metavar="ENDPOINT", help="Id of the endpoint; default for jobs' own.")],
    grace: Annotated[
        int, typer.Option("--grace", min=0, max=2_592_000, metavar="SECONDS", help="How long the old secret signs too.")
    ] = 86_400,
    json: Json = False,
) -> None:
    """Give an endpoint a new secret and print it, this once."""
    with _connected() as remote:
        made = remote.call("POST", _path(endpoint, "rotate"), json={"grace_seconds": grace})
    print_record(made if json else _pick(made, "secret", "old_secret_until"), as_json=json)
    if endpoint != "default":
        say("Keep the secret: it is not shown again.")


@app.command("test")
def send_test(endpoint: Endpoint, json: Json = False) -> None:
    """Send `webhook.test` to an endpoint now and print what came of it. Exits with 1 if it failed."""
    with _connected() as remote:
        attempt = remote.call("POST", _path(endpoint, "test"))
    shown = attempt if json else _pick(attempt, "at", "status_code", "ms", "failure", "response")
    print_record(shown, as_json=json)
    if attempt["failure"] is not None:
        raise typer.Exit(1)


@app.command()
def deliveries(
    endpoint: Endpoint,
    message: Annotated[str | None, typer.Argument(metavar="[MESSAGE]", help="One event, with every attempt.")] = None,
    *,
    status: Annotated[Literal["pending", "succeeded", "failed", "cancelled"] | None, typer.Option()] = None,
    event: Annotated[str | None, typer.Option(help="Only this event, such as job.completed.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=200, help="How many, the newest first.")] = 50,
    json: Json = False,
) -> None:
    """List the deliveries to an endpoint, or show one with its attempts."""
    with _connected() as remote:
        if message is not None:
            _show_delivery(remote.call("GET", _path(endpoint, "deliveries", message)), as_json=json)
            return
        wanted: dict[str, str | int] = {"limit": limit}
        wanted |= {name: value for name, value in (("status", status), ("event", event)) if value is not None}
        rows = remote.call("GET", _path(endpoint, "deliveries"), params=wanted).rows("data")
    print_rows(rows, _DELIVERY, as_json=json)


@app.command()
def redeliver(endpoint: Endpoint, message: Message, json: Json = False) -> None:
    """Send an event to an endpoint again, under the same id."""
    with _connected() as remote:
        delivery = remote.call("POST", _path(endpoint, "deliveries", message, "redeliver"))
    print_record(delivery if json else _pick(delivery, *_DELIVERY), as_json=json)


@app.command()
def recover(
    endpoint: Endpoint,
    *,
    since: Annotated[str | None, typer.Option(metavar="TIME", help="From when, RFC 3339; its making if none.")] = None,
    until: Annotated[str | None, typer.Option(metavar="TIME", help="To before when; now if none.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list them.")] = False,
    json: Json = False,
) -> None:
    """Send an endpoint the events it missed, also while it was disabled; never one twice. Prints which."""
    wanted = {"since": since, "until": until, "dry_run": dry_run}
    asked = {name: value for name, value in wanted.items() if value is not None}
    with _connected() as remote:
        found = remote.call("POST", _path(endpoint, "recover"), json=asked)
    rows = found.rows("data")
    if json:
        print_record(found, as_json=True)
    else:
        print_rows(rows, ["message_id", "event", "status", "created_at"], as_json=False)
        say(f"Events {'that would be sent' if dry_run else 'on their way'}: {found['count']}.")
    if found["more"]:
        say("There are more: run it again for the rest.")


@app.command()
def listen(
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port on loopback; 0 for any.")] = 4567,
    forward_to: Annotated[str | None, typer.Option(metavar="URL", help="Pass genuine requests on to it.")] = None,
    json: Json = False,
) -> None:
    """Receive webhooks on this machine, verify them and print a line an event, until interrupted.

    Verifies with ARACHNE_WEBHOOK_SECRET (several parted by spaces). Without one, and with credentials, it adds an
    endpoint for itself, takes jobs' own webhooks as well, and deletes the endpoint at the end. What is not genuine is
    answered with 400, and why goes to stderr. With --json a line holds the event's JSON and its message_id.
    """
    from arachne.cli.listener import Listener, check_forwarding, ended_by_signals
    from arachne.client import ClientSettings

    settings = ClientSettings.load()
    if forward_to is not None:
        check_forwarding(forward_to)
    with Listener(port, forward_to=forward_to, as_json=json) as listener, _secrets(settings, listener.url) as secrets:
        listener.start(secrets)
        with ended_by_signals(listener.ended):  # before it says that it listens: whoever waits for that may end it then
            say(f"Listening on {listener.url}")
            listener.wait()
    if listener.lost is not None:
        raise listener.lost


@contextmanager
def _secrets(settings: "ClientSettings", url: str) -> Iterator[list[str]]:
    """What requests to `url` are signed with: what is set, or else that of an endpoint made for this while."""
    from arachne.cli.clients import open_client
    from arachne.errors import SetupError

    if settings.webhook_secret is not None and (given := settings.webhook_secret.get_secret_value().split()):
        yield given
        return
    if not settings.has_credentials:
        raise SetupError(
            "Set ARACHNE_WEBHOOK_SECRET to the endpoint's secret, or ARACHNE_TOKEN so that an endpoint can be added."
        )
    with open_client(settings) as remote:
        wanted = {"url": url, "events": ["*"], "description": "arachne webhooks listen"}
        made = remote.call("POST", _path(), json=wanted)
        try:
            yield [str(made["secret"]), str(remote.call("GET", _path("default", "secret"))["secret"])]
        finally:
            _take_away(remote, str(made["endpoint_id"]))


def _take_away(remote: "Service", endpoint_id: str) -> None:
    """The endpoint is gone.

    Raises:
        ArachneError: it is not, and that was said.
    """
    from arachne.errors import ArachneError, NotFound

    try:
        remote.call("DELETE", _path(endpoint_id))
    except NotFound:
        pass  # somebody else has removed it
    except ArachneError:
        say(f"The endpoint is left: `arachne webhooks remove {endpoint_id}` removes it.")
        raise


@contextmanager
def _connected() -> "Iterator[Service]":
    from arachne.cli.clients import open_client

    with open_client() as remote:
        yield remote


def _show_delivery(delivery: "Answer", *, as_json: bool) -> None:
    if as_json:
        print_record(delivery, as_json=True)
        return
    print_record(_pick(delivery, *_DELIVERY), as_json=False)
    print_rows(delivery.rows("attempts"), _ATTEMPT, as_json=False)


def _pick(record: dict[str, object], *names: str) -> dict[str, object]:
    """These members for people to read; null ones are a dash."""
    return {name: "-" if record[name] is None else _joined(record[name]) for name in names}


def _joined(value: object) -> object:
    return ", ".join(map(str, value)) if isinstance(value, list) else value


def _path(*segments: str) -> str:
    """Where endpoints are, or what these ids and words name below them."""
    from arachne.client.paths import WEBHOOKS, segment

    return "/".join([WEBHOOKS, *map(segment, segments)])
