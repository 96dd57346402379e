"""Accounts, their clients, tokens and keys on the command line."""

import io
import json
import os
import pwd
import subprocess
import threading
from base64 import urlsafe_b64decode
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from joserfc.jwk import OKPKey
from sqlmodel import select

from arachne.accounts import find_account, find_client, secret_matches
from arachne.cli import checks
from arachne.database import Database
from arachne.schemas.tables import RevokedToken
from arachne.schemas.token import CLIENT_SCOPES
from arachne.settings import Settings
from arachne.signing_keys import public_keys
from arachne.tokens import read_token
from tests.core.forged_tokens import MISSING, Forge

Run = Callable[..., tuple[int, str, str]]


@pytest.mark.usefixtures("connected")
def test_account_is_created_listed_and_disabled(run: Run, database: Database) -> None:
    """`create --json` prints exactly the three members, `list --json` what there is, `disable` what it says."""
    code, out, err = run("account", "create", "acme", "--json")
    made = json.loads(out)
    assert (code, set(made)) == (0, {"account_id", "client_id", "client_secret"})
    assert made["client_secret"] not in err
    assert run("account", "disable", "acme")[0] == 0
    listed = json.loads(run("account", "list", "--json")[1])
    assert [(row["account_id"], row["name"]) for row in listed] == [(made["account_id"], "acme")]
    assert listed[0]["disabled_at"].endswith("Z")
    with database.transaction() as transaction:
        assert find_account(transaction.session, "acme").disabled_at is not None


@pytest.mark.usefixtures("connected")
@pytest.mark.parametrize("words", [("create", "acme"), ("client", "create", "acme")])
def test_a_shell_takes_over_what_it_needs_to_sign_in(
    run: Run, database: Database, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`eval "$(arachne account create NAME --shell)"`: nothing else is on stdout, and the secret is right."""
    run("account", "create", "acme" if words[0] == "client" else "other")
    monkeypatch.setenv("ARACHNE_PUBLIC_URL", "https://arachne.example.com:8443")
    out = run("account", *words, "--shell")[1]
    line = ["sh", "-euc", 'eval "$1"; printenv ARACHNE_CLIENT_ID ARACHNE_CLIENT_SECRET ARACHNE_URL', "-", out]
    client_id, secret, url = subprocess.run(line, capture_output=True, text=True, check=True).stdout.split()
    assert url == "https://arachne.example.com:8443"
    with database.transaction() as transaction:
        assert secret_matches(find_client(transaction.session, client_id), secret)


@pytest.mark.usefixtures("connected")
def test_account_is_erased_only_when_asked_twice(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """`erase` asks, and takes nothing for no; with `--yes` it doesn't ask. What went is printed, and gone."""
    account_id = json.loads(run("account", "create", "acme", "--json")[1])["account_id"]
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
    code, out, err = run("account", "erase", "acme")
    assert (code, out) == (1, "")
    assert "erases the account acme" in err
    code, out, _ = run("account", "erase", "acme", "--yes", "--json")
    assert (code, json.loads(out)) == (0, {"account_id": account_id, "jobs": 0, "results": 0, "events": 0})
    assert json.loads(run("account", "list", "--json")[1]) == []
    code, _, err = run("account", "erase", "acme", "--yes")
    assert (code, "no account 'acme'" in err) == (1, True)
    assert run("account", "create", "acme", "--json")[0] == 0


@pytest.mark.usefixtures("connected")
def test_client_gets_a_new_secret(run: Run, database: Database) -> None:
    """`account client rotate` prints it once; the old one works on for as long as asked."""
    made = json.loads(run("account", "create", "acme", "--json")[1])
    code, out, err = run("account", "client", "rotate", made["client_id"], "--grace", "0", "--json")
    rotated = json.loads(out)
    assert (code, rotated["client_id"]) == (0, made["client_id"])
    assert rotated["client_secret"] not in err
    with database.transaction() as transaction:
        client = find_client(transaction.session, made["client_id"])
    assert secret_matches(client, rotated["client_secret"])
    assert not secret_matches(client, made["client_secret"])
    assert run("account", "client", "rotate", "cli_nobody")[0] == 1


@pytest.mark.usefixtures("connected")
def test_rotated_keys_sign_and_old_ones_verify(run: Run, database: Database) -> None:
    """`rotate-keys` prints the id of the key that signs from now on; the former one stays published."""
    run("account", "create", "acme")
    run("token", "acme")
    code, out, _ = run("rotate-keys")
    with database.transaction() as transaction:
        published = [key["kid"] for key in public_keys(transaction.session)]
    assert (code, published[0], len(published)) == (0, out.strip(), 2)
    header = run("token", "acme")[1].partition(".")[0]
    assert json.loads(urlsafe_b64decode(header + "=="))["kid"] == out.strip()


@pytest.mark.usefixtures("connected")
def test_accounts_are_bound_to_another_issuers_claim(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """When they are made or later; whoever binds to an issuer that is not trusted here is told."""
    issuer = {
        "issuer": "https://issuer.test", "audience": "arachne", "jwks_url": "https://issuer.test/jwks",
        "algorithms": ["RS256"], "account_claim": "tenant", "scopes": ["vision:read"],
    }  # fmt: skip
    monkeypatch.setenv("ARACHNE_TRUSTED_ISSUERS", json.dumps([issuer]))
    name = ("--issuer", issuer["issuer"])
    code, out, err = run("account", "create", "acme", *name, "--claim", "tenant-7", "--json")
    assert (code, set(json.loads(out))) == (0, {"account_id", "client_id", "client_secret"})
    assert "ARACHNE_TRUSTED_ISSUERS" not in err
    assert run("account", "create", "half", *name)[0] == 1
    run("account", "create", "other")
    assert run("account", "bind", "other", *name, "--claim", "tenant-7")[0] == 1
    assert run("account", "bind", "acme")[0] == 0
    code, _, err = run("account", "bind", "other", "--issuer", "https://stranger.test", "--claim", "x")
    assert (code, "no issuer 'https://stranger.test'" in err) == (0, True)
    listed = json.loads(run("account", "list", "--json")[1])
    bound = {row["name"]: (row["issuer"], row["claim"]) for row in listed}
    assert bound == {"acme": (None, None), "other": ("https://stranger.test", "x")}


@pytest.mark.usefixtures("connected")
def test_clients_and_accounts_are_let_in_again(run: Run, database: Database) -> None:
    """`disable` and `enable` of both say what they did; a client that there is none of is told."""
    made = json.loads(run("account", "create", "acme", "--json")[1])

    def is_let_in() -> bool:
        with database.transaction() as transaction:
            return find_client(transaction.session, made["client_id"]) is not None

    for what in (("account", "client", "{}", made["client_id"]), ("account", "{}", "acme")):
        for act, after in (("disable", False), ("enable", True)):
            code, out, err = run(*(word.format(act) for word in what))
            assert (code, out, f"{act}d" in err, is_let_in()) == (0, "", True, after)
    assert run("account", "client", "disable", "cli_nobody")[0] == 1


@pytest.mark.usefixtures("connected")
def test_a_token_is_revoked_by_itself_or_by_its_id(run: Run, database: Database) -> None:
    """By its id alone it is one of ours; another issuer's is named by its issuer, or by the token itself."""
    run("account", "create", "acme")
    token = run("token", "acme")[1].strip()
    assert run("revoke", token)[:2] == (0, "")
    assert run("revoke", "tok_2")[0] == 0
    assert run("revoke", "7", "--issuer", "https://issuer.test")[0] == 0
    assert run("revoke", "a.b.c")[0] == 1
    assert run("revoke", Forge().token(claims={"jti": MISSING}))[0] == 1
    with database.transaction() as transaction:
        found = {(row.issuer, row.jti) for row in transaction.session.exec(select(RevokedToken)).all()}
    ours, jti = "http://127.0.0.1:8000", str(read_token(token).claims["jti"])
    assert found == {(ours, jti), (ours, "tok_2"), ("https://issuer.test", "7")}


@pytest.mark.usefixtures("connected")
def test_after_a_leak_the_former_keys_are_withdrawn(run: Run, database: Database) -> None:
    """`rotate-keys --withdraw` leaves the new key alone published."""
    run("account", "create", "acme")
    run("token", "acme")
    code, out, _ = run("rotate-keys", "--withdraw")
    with database.transaction() as transaction:
        assert (code, [key["kid"] for key in public_keys(transaction.session)]) == (0, [out.strip()])


@pytest.mark.usefixtures("connected")
def test_token_prints_the_token_alone(run: Run) -> None:
    """One JWT on stdout; an unknown account is refused with exit code 1."""
    run("account", "create", "acme", "--json")
    code, out, err = run("token", "acme", "--scope", "vision:read")
    assert (code, err) == (0, "")
    assert [len(part) > 0 for part in out.strip().split(".")] == [True] * 3
    code, out, err = run("token", "nobody")
    assert (code, out) == (1, "")
    assert err.startswith("arachne: ")


@pytest.fixture
def published() -> Iterator[str]:
    """The address of a key set on loopback."""
    key = OKPKey.generate_key("Ed25519", {"kid": "k1"}).as_dict(private=False)

    class Publisher(BaseHTTPRequestHandler):
        def do_GET(self) -> None:  # as the base calls it
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps({"keys": [key]}).encode())

        def log_message(self, *_: object) -> None:
            """Nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Publisher) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/jwks"
        server.shutdown()
        thread.join()


def test_doctor_asks_the_trusted_issuers_for_their_keys(monkeypatch: pytest.MonkeyPatch, published: str) -> None:
    """And says what is wrong with each: its setting, its server, its keys."""
    monkeypatch.delenv("ARACHNE_TRUSTED_ISSUERS", raising=False)

    def look(url: str, algorithm: str = "Ed25519", *, allow_http: bool = True) -> tuple[str, str]:
        issuer = {
            "issuer": "https://issuer.test", "audience": "a", "jwks_url": url, "algorithms": [algorithm],
            "account_claim": "tenant", "scopes": ["vision:read"],
        }  # fmt: skip
        [check] = checks._issuers(Settings.load(trusted_issuers=[issuer], egress_allow_http=allow_http))
        return check.state, check.found + check.mend

    assert look(published) == ("ok", "1 usable keys: k1")
    for state, told in (
        look(published, "RS256"),
        look("http://127.0.0.1:1/jwks"),
        look(published, allow_http=False),
    ):
        assert (state, "jwks_url" in told) == ("failed", True)


@pytest.mark.usefixtures("connected")
def test_clients_are_made_with_the_scopes_that_are_asked_for(run: Run, database: Database) -> None:
    """`admin` only where it is said; a scope that there is none of is told."""
    made = json.loads(run("account", "create", "boss", "--scope", "admin", "--json")[1])
    code, out, err = run("account", "client", "create", "boss", "--name", "nightly", "--json")
    further = json.loads(out)
    assert (code, further["client_secret"] in err) == (0, False)
    assert run("account", "client", "create", "boss", "--scope", "root")[0] == 2
    listed = json.loads(run("account", "client", "list", "boss", "--json")[1])
    scopes = {row["client_id"]: row["scopes"] for row in listed}
    assert scopes == {made["client_id"]: ["admin"], further["client_id"]: list(CLIENT_SCOPES)}
    with database.transaction() as transaction:
        assert secret_matches(find_client(transaction.session, further["client_id"]), further["client_secret"])


@pytest.mark.usefixtures("connected")
def test_what_commands_do_is_on_record(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who at which command, and what; nothing of what the command was given but ids."""
    monkeypatch.setenv("USER", "somebody else")
    made = json.loads(run("account", "create", "acme", "--json")[1])
    secret = run("account", "client", "rotate", made["client_id"])[1].split("client secret: ")[1].split()[0]
    token = run("token", "acme")[1].strip()
    run("revoke", token)
    run("account", "disable", "acme")
    run("rotate-keys")
    code, out, _ = run("audit", "--json")
    acts = json.loads(out)
    assert code == 0
    assert [(one["actor"]["command"], one["action"]) for one in reversed(acts)] == [
        ("arachne account create", "account.create"),
        ("arachne account client rotate", "client.rotate"),
        ("arachne token", "token.issue"),
        ("arachne revoke", "token.revoke"),
        ("arachne account disable", "account.disable"),
        ("arachne rotate-keys", "keys.rotate"),
    ]
    assert {one["actor"]["os_user"] for one in acts} == {pwd.getpwuid(os.getuid()).pw_name}
    assert not any(text in out for text in (secret, made["client_secret"], token.split(".")[2]))
    found = json.loads(run("audit", "--action", "client.rotate", "--account", made["account_id"], "--json")[1])
    assert [one["target"] for one in found] == [made["client_id"]]
    assert "account.disable" in run("audit", "--limit", "2")[1]
    assert json.loads(run("audit", "--since", "2100-01-01", "--json")[1]) == []
