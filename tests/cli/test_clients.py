"""Commands whose ARACHNE_URL leads to something else that answers with JSON."""

from collections.abc import Callable

import pytest
import respx

from arachne.cli.listener import Listener

Run = Callable[..., tuple[int, str, str]]
COMMANDS = (
    *("usage", "usage --csv", "usage statement --month 2026-02", "usage statement --month 2026-02 --csv"),
    *("webhooks list", "webhooks add https://a.example", "webhooks change w --enable", "webhooks rotate w"),
    *("webhooks test w", "webhooks deliveries w", "webhooks deliveries w m", "webhooks redeliver w m"),
    *("webhooks recover w", "webhooks listen --port 0"),
)


@pytest.mark.parametrize("answer", [{}, {"data": None}, {"data": [1]}, {"data": [{}], "lines": [{}]}], ids=str)
@pytest.mark.parametrize("command", COMMANDS)
def test_what_is_no_service_of_ours_is_told(
    run: Run, service: respx.Router, monkeypatch: pytest.MonkeyPatch, command: str, answer: dict[str, object]
) -> None:
    """In a line that names the variable, and nothing is printed, whatever it is that answers."""
    monkeypatch.delenv("ARACHNE_WEBHOOK_SECRET", raising=False)
    monkeypatch.setattr(Listener, "wait", lambda _: None)
    service.route(path__startswith="/api/").respond(json=answer)
    code, out, err = run(*command.split())
    assert (code, out, len(err.splitlines()), "ARACHNE_URL" in err) == (3, "", 1, True), err


def test_members_of_a_newer_service_do_no_harm(run: Run, service: respx.Router) -> None:
    """Where there are more than are printed."""
    row = {"endpoint_id": "whe_1", "url": "u", "events": ["job.*"], "enabled": True, "disabled_reason": None, "new": 1}
    service.get("/api/webhooks").respond(json={"data": [row], "next_cursor": None, "new": 1})
    assert "whe_1" in run("webhooks", "list")[1]
    line = dict.fromkeys(("plan_id", "kind", "unit_price", "vlm_price", "entries", "images", "amount", "new"), "1")
    told = {"account_id": "a", "month": "m", "currency": "EUR", "images": 1, "amount_due": "1", "lines": [line]}
    service.get("/api/usage/statement").respond(json=told)
    code, out, _ = run("usage", "statement", "--month", "2026-02", "--csv")
    assert (code, len(out.splitlines()), "new" in out) == (0, 3, False)
