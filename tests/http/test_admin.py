"""Administrators: what they do works across accounts, is on record, and makes no token more than it is."""

import json
from typing import Any

import anyio.to_thread
import httpx
import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from arachne.accounts import create_account
from arachne.actors.maintenance import Housekeeping
from arachne.database import Database
from arachne.http.routes import all_resources
from arachne.storage import open_storage
from tests.core.forged_tokens import MISSING, Forge
from tests.http.conftest import Service
from tests.http.world import fill, make_world

ADMIN = "/api/admin"
ACTS = [
    (resource.path, method, operation)
    for resource in all_resources()
    for method, operation in resource.operations.items()
    if operation.scope == "admin" and method != "GET"
]


async def ask(service: Service, method: str, path: str, **request: Any) -> httpx.Response:
    """The answer to a token of acme's with the scope `admin` alone."""
    headers = await service.headers(scopes=("admin",))
    return await service.client.request(method, ADMIN + path, headers=headers, **request)


async def rows(service: Service) -> list[dict[str, Any]]:
    """The whole record, oldest first."""
    async with service.database.session() as session:
        found = await session.execute(text("SELECT * FROM audit_log ORDER BY at, audit_id"))
        return [dict(row) for row in found.mappings()]


async def test_every_act_is_on_record_with_who_and_in_which_request(service: Service) -> None:
    """Every route of administrators that changes something; no secret that they were shown is in it."""
    ids = await make_world(service)
    headers = await service.headers(scopes=("admin",))
    shown = []
    for path, method, operation in sorted(ACTS, key=lambda one: (one[1] == "DELETE", one[0])):
        body = dict(operation.example) if operation.example else None
        response = await service.client.request(method, fill(path, ids), headers=headers, json=body)
        assert response.is_success, (method, path, response.text)
        acts = [row for row in await rows(service) if row["request_id"] == response.headers["x-request-id"]]
        assert len(acts) == 1, (method, path)
        assert (acts[0]["actor"], acts[0]["subject"], acts[0]["client_id"]) == ("admin", "operator", "operator")
        assert acts[0]["target"] is not None
        shown += [value for name, value in response.json().items() if "secret" in name and "until" not in name]
    assert len(shown) == 3
    told = json.dumps(await rows(service), default=str)
    assert not any(secret in told for secret in shown)


async def test_a_failed_act_is_not_on_record(service: Service) -> None:
    """What was refused changed nothing."""
    before = len(await rows(service))
    assert (await ask(service, "POST", "/accounts", json={"name": "acme"})).status_code == 409
    assert (await ask(service, "POST", "/accounts", json={"name": "x", "plan_id": "none"})).status_code == 409
    assert [row["action"] for row in (await rows(service))[before:]] == ["token.issue", "token.issue"]


async def test_an_account_is_made_used_disabled_and_enabled(service: Service) -> None:
    """Its first client gets tokens for it; the secret is in no list."""
    made = await ask(service, "POST", "/accounts", json={"name": "new"})
    assert made.status_code == 201
    account_id, client_id, secret = (made.json()[name] for name in ("account_id", "client_id", "client_secret"))
    assert made.headers["location"].endswith(f"{ADMIN}/accounts/{account_id}")
    granted = {"grant_type": "client_credentials", "client_id": client_id, "client_secret": secret}
    token = (await service.client.post("/api/auth/token", data=granted)).json()["access_token"]
    used = {"Authorization": f"Bearer {token}"}
    assert (await service.client.get("/api/usage", headers=used)).status_code == 200
    shown = (await ask(service, "POST", f"/accounts/{account_id}/disable")).json()
    assert (shown["name"], shown["erasing"], shown["disabled_at"] is None) == ("new", False, False)
    assert (await service.client.get("/api/usage", headers=used)).status_code == 403
    assert (await ask(service, "POST", f"/accounts/{account_id}/enable")).json()["disabled_at"] is None
    assert (await service.client.get("/api/usage", headers=used)).status_code == 200
    assert (await ask(service, "POST", f"/clients/{client_id}/disable")).json()["disabled_at"] is not None
    assert (await service.client.get("/api/usage", headers=used)).status_code == 401
    listed = await ask(service, "GET", f"/accounts/{account_id}/clients")
    assert ([one["client_id"] for one in listed.json()["data"]], secret in listed.text) == ([client_id], False)


async def test_lists_come_in_pages(service: Service) -> None:
    """Every one of them once, whatever the page's size."""
    for number in range(4):
        await service.account(f"account {number}")
    seen, cursor = [], ""
    for _ in range(10):
        page = (await ask(service, "GET", f"/accounts?limit=2{cursor}")).json()
        seen += [one["name"] for one in page["data"]]
        if page["next_cursor"] is None:
            break
        cursor = f"&cursor={page['next_cursor']}"
    assert seen == ["acme", *(f"account {number}" for number in range(4))]
    assert (await ask(service, "GET", "/plans?cursor=" + cursor.removeprefix("&cursor="))).status_code == 400


async def test_a_plan_is_made_changed_and_given(service: Service) -> None:
    """Prices are decimal strings; members that are absent stay."""
    other = await service.account("other")
    made = await ask(service, "POST", "/plans", json={"plan_id": "team", "price_image": "0.002", "monthly_images": 5})
    assert (made.status_code, made.json()["price_image"]) == (201, "0.002000")
    assert (await ask(service, "POST", "/plans", json={"plan_id": "team"})).status_code == 409
    assert (await ask(service, "POST", "/plans", json={"plan_id": "float", "price_image": 0.002})).status_code == 422
    changed = (await ask(service, "PATCH", "/plans/team", json={"price_image": "0.003"})).json()
    assert (changed["price_image"], changed["monthly_images"]) == ("0.003000", 5)
    given = await ask(service, "PATCH", f"/accounts/{other.account_id}", json={"plan_id": "team"})
    assert given.json()["plan_id"] == "team"
    assert [one["plan_id"] for one in (await ask(service, "GET", "/plans")).json()["data"]] == ["default", "team"]


async def test_no_token_makes_more_of_itself(service: Service) -> None:
    """`admin` is not theirs to grant, nor are clients that have it theirs to take over or let in again."""
    boss = await service.database.run(lambda tx: create_account(tx.session, "boss", scopes=("admin", "usage:read")))
    clients = f"/accounts/{boss.account_id}/clients"
    for scopes in (["admin"], ["usage:read", "admin"], []):
        assert (await ask(service, "POST", clients, json={"scopes": scopes})).status_code == 422
    for act in ("rotate", "enable"):
        refused = await ask(service, "POST", f"/clients/{boss.client_id}/{act}")
        assert (refused.status_code, refused.json()["code"]) == (409, "conflict")
    assert (await ask(service, "POST", f"/clients/{boss.client_id}/disable")).status_code == 200
    ordinary = (await ask(service, "POST", clients, json={"scopes": ["usage:read"]})).json()
    granted = {name: ordinary[name] for name in ("client_id", "client_secret")} | {"grant_type": "client_credentials"}
    assert (await service.client.post("/api/auth/token", data=granted)).json()["scope"] == "usage:read"
    wider = await service.client.post("/api/auth/token", data=granted | {"scope": "usage:read admin"})
    assert (wider.status_code, wider.json()["error"]) == (400, "invalid_scope")


async def test_an_administrator_does_not_saw_off_the_branch(service: Service) -> None:
    """The account a token acts from is neither disabled nor erased with it."""
    account_id = (await ask(service, "GET", "/accounts")).json()["data"][0]["account_id"]
    for method, path in (("POST", f"/accounts/{account_id}/disable"), ("DELETE", f"/accounts/{account_id}")):
        assert (await ask(service, method, path)).status_code == 409
    assert (await ask(service, "GET", f"/accounts/{account_id}")).json()["disabled_at"] is None


async def test_names_are_no_ids(service: Service) -> None:
    """An account is named by its id here, and no account's name may look like one, or like nothing."""
    other = await service.account("other")
    assert (await ask(service, "GET", "/accounts/other")).status_code == 404
    for name in (other.account_id, " padded", "two\nlines"):
        refused = await ask(service, "POST", "/accounts", json={"name": name})
        assert (refused.status_code, refused.json()["code"]) == (422, "invalid_options")


async def test_an_erased_account_is_closed_at_once_and_then_goes(service: Service) -> None:
    """Nothing lets it in again meanwhile; housekeeping ends it, with two entries in the record."""
    other = await service.account("other")
    headers, path = await service.headers("other"), f"/accounts/{other.account_id}"
    for _ in range(2):  # asking again changes nothing
        erased = await ask(service, "DELETE", path)
        assert (erased.status_code, erased.json()["erasing"]) == (202, True)
    assert (await service.client.get("/api/usage", headers=headers)).status_code == 403
    assert (await ask(service, "GET", path)).json()["erasing"] is True
    for act in (f"{path}/enable", f"{path}/clients"):
        assert (await ask(service, "POST", act)).status_code == 409
    for _ in range(2):
        await anyio.to_thread.run_sync(keep_house, service)
    for method in ("GET", "DELETE"):
        assert (await ask(service, method, path)).status_code == 404
    acts = (await ask(service, "GET", f"/audit?account_id={other.account_id}")).json()["data"]
    kinds = [(one["action"], one["actor"]["kind"]) for one in acts if one["action"] != "token.issue"]
    assert kinds == [("account.erased", "service"), ("account.erase", "admin"), ("account.create", "operator")]


def keep_house(service: Service) -> None:
    """What a worker does every minute."""
    assert service.settings.database_url is not None
    database = Database(service.settings.database_url)
    try:
        Housekeeping(database, service.settings, open_storage(service.settings)).erase()
    finally:
        database.close()


async def test_a_revoked_token_and_a_withdrawn_key_end_tokens(service: Service) -> None:
    """By the token, by its id; and what is no token is said to be none."""
    first, second = await service.token(), await service.token()
    assert (await ask(service, "POST", "/tokens/revoke", json={"token": first})).status_code == 200
    used = {"Authorization": f"Bearer {first}"}
    assert (await service.client.get("/api/usage", headers=used)).status_code == 401
    jti = next(row["target"] for row in reversed(await rows(service)) if row["action"] == "token.revoke")
    assert jti.startswith("tok_")
    nameless = Forge().token(claims={"jti": MISSING})
    for body in ({"token": "a.b.c"}, {"token": nameless}, {"jti": "a\nb"}, {}, {"token": second, "jti": "x"}):
        refused = await ask(service, "POST", "/tokens/revoke", json=body)
        assert (refused.status_code, refused.json()["code"]) == (422, "invalid_options")
    kept = {"Authorization": f"Bearer {second}"}
    assert (await service.client.get("/api/usage", headers=kept)).status_code == 200
    kid = (await ask(service, "POST", "/keys/rotate")).json()["kid"]
    published = (await service.client.get("/.well-known/jwks.json")).json()["keys"]
    assert (published[0]["kid"], len(published)) == (kid, 2)
    assert (await service.client.get("/api/usage", headers=kept)).status_code == 200
    kid = (await ask(service, "POST", "/keys/rotate", json={"withdraw": True})).json()["kid"]
    assert [key["kid"] for key in (await service.client.get("/.well-known/jwks.json")).json()["keys"]] == [kid]
    await ask(service, "GET", "/plans")  # by a token of an unknown key, which makes it look
    assert (await service.client.get("/api/usage", headers=kept)).status_code == 401


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/keys/rotate", {"withdraw": "yes"}),
        ("POST", "/keys/rotate", {"withdraw": 1}),
        ("POST", "/clients/CLIENT/rotate", {"grace_seconds": True}),
        ("POST", "/clients/CLIENT/rotate", {"grace_seconds": "60"}),
        ("GET", "/audit?since=0", None),
        ("GET", "/audit?since=2026-01-01", None),
        ("GET", "/audit?since=2026-01-01T00:00:00", None),
    ],
)
async def test_a_slip_is_not_read_as_something_else(service: Service, method: str, path: str, body: Any) -> None:
    """As for everybody's requests: no word is a yes, no number a time, and nothing is done."""
    account = await service.account("other")
    refused = await ask(service, method, path.replace("CLIENT", account.client_id), json=body)
    assert (refused.status_code, refused.json()["code"]) == (422, "invalid_options")
    assert not [row for row in await rows(service) if row["action"].endswith("rotate")]


@pytest.mark.parametrize(
    "statement", ["UPDATE audit_log SET action = ''", "DELETE FROM audit_log", "TRUNCATE audit_log"]
)
async def test_the_record_only_grows(service: Service, statement: str) -> None:
    """Whoever has the database's password can't change it by a statement."""
    with pytest.raises(DBAPIError, match="append-only"):
        await service.execute(statement)


async def test_the_record_is_searched(service: Service) -> None:
    """By account, by act, from a moment on, newest first, in pages."""
    other = await service.account("other")
    await ask(service, "POST", f"/accounts/{other.account_id}/disable")
    found = (await ask(service, "GET", f"/audit?account_id={other.account_id}")).json()["data"]
    assert [one["action"] for one in found] == ["account.disable", "account.create"]
    assert found[0]["request_id"].startswith("req_")
    page = (await ask(service, "GET", "/audit?action=account.create&limit=1")).json()
    following = (await ask(service, "GET", f"/audit?action=account.create&cursor={page['next_cursor']}")).json()
    assert [one["account_id"] for one in page["data"]] == [other.account_id]
    assert len(following["data"]) == 1
    later = await ask(service, "GET", "/audit?since=2100-01-01T00:00:00Z")
    assert later.json()["data"] == []
