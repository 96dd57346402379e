"""From the Authorization header to a caller whose account may act here."""

import asyncio
import time
from asyncio import Lock
from collections.abc import Mapping

from joserfc.jwk import Key, OKPKey
from starlette.datastructures import Headers

from arachne.database import AsyncDatabase, Transaction
from arachne.errors import InsufficientScope, InvalidToken, Unavailable
from arachne.http.exchange import Caller, Exchange
from arachne.http.gathering import Gathered
from arachne.schemas.token import Scope
from arachne.settings import Settings
from arachne.signing_keys import public_keys
from arachne.standing import Credential, Standing, check_standing
from arachne.tokens import (
    AccessToken,
    Issuer,
    RemoteKeys,
    UnverifiedToken,
    our_issuer,
    read_token,
    require_algorithm,
    trusted_issuers,
    verify_token,
)

REFRESH_S = 60.0
PAUSE_S = 0.1
RETRY_S = 5.0


class KeyRing:
    """Our public keys, read anew every minute and for a token that names one we don't know.

    The last good set is kept, and used while the database is away or slow. However many tokens name unknown keys, one
    look every `PAUSE_S` serves them all, and when it fails it fails for all that waited for it.
    """

    def __init__(self, database: AsyncDatabase) -> None:
        self._database = database
        self._keys: Mapping[str, Key] = {}
        self._began_s = -REFRESH_S
        self._failed_s = -REFRESH_S
        self._failure = Unavailable("The database can't be reached; try again in a moment.")
        self._lock = Lock()

    async def keys_for(self, key_id: str) -> Mapping[str, Key]:
        """The keys by id; `key_id` is among them if it exists.

        Raises:
            Unavailable: the database can't be asked for a key we don't know.
        """
        asked_s = time.monotonic()
        if key_id in self._keys and (self._is_fresh() or self._lock.locked()):
            return self._keys
        async with self._lock:
            known = key_id in self._keys
            if self._began_s < asked_s and not (known and self._is_fresh()):
                if self._failed_s < asked_s:
                    await self._refresh()
                if self._failed_s >= asked_s and not known:
                    raise self._failure
        return self._keys

    def _is_fresh(self) -> bool:
        now_s = time.monotonic()
        return now_s - self._began_s < REFRESH_S or now_s - self._failed_s < RETRY_S

    async def _refresh(self) -> None:
        await asyncio.sleep(max(0.0, self._began_s + PAUSE_S - time.monotonic()))
        began_s = time.monotonic()
        try:
            found = await self._database.run(_read_keys)
        except Unavailable as error:
            self._failed_s, self._failure = time.monotonic(), error
            return
        self._keys = {key["kid"]: OKPKey.import_key(dict(key)) for key in found}
        self._began_s = began_s


class Authenticator:
    """Turns bearer tokens, our own and those of trusted issuers, into callers."""

    def __init__(self, settings: Settings, database: AsyncDatabase) -> None:
        self._standings = Gathered(database, _check_standing)
        ours = our_issuer(settings)
        self._trusted: dict[str, tuple[Issuer, KeyRing | RemoteKeys]] = {**trusted_issuers(settings)}
        self._trusted[ours.name] = ours, KeyRing(database)

    async def authenticate(self, request_headers: Headers, exchange: Exchange) -> Caller:
        """The caller, also noted on the exchange.

        Raises:
            InvalidToken: no token, or one that is not acceptable.
            AccountUnknown: its account is unknown or disabled.
        """
        verified = await self._verify(read_token(_bearer(request_headers, exchange)))
        credential = Credential.of(verified)
        standing = await self._standings.get(credential)
        exchange.caller = Caller(
            account_id=standing.account_id,
            subject=verified.subject,
            client_id=verified.client_id,
            scopes=verified.scopes,
            expires_at=verified.expires_at,
            rates=standing.plan.rates,
            credential=credential,
        )
        return exchange.caller

    async def recheck(self, caller: Caller) -> None:
        """Nothing, where the caller's token is still good after a long wait.

        Raises:
            InvalidToken, AccountUnknown: it has been revoked, or its client or account disabled.
        """
        await self._standings.get(caller.credential)

    async def close(self) -> None:
        """End what is under way."""
        for _, keys in self._trusted.values():
            if isinstance(keys, RemoteKeys):
                await keys.close()

    async def _verify(self, token: UnverifiedToken) -> AccessToken:
        found = self._trusted.get(token.issuer or "")
        if found is None:
            raise InvalidToken("The token is from an issuer that is not trusted here.")
        issuer, keys = found
        require_algorithm(token, issuer)  # before anybody is asked for keys
        return verify_token(token, issuer, await keys.keys_for(token.key_id))


def require_scope(caller: Caller, scope: Scope, exchange: Exchange) -> None:
    """Nothing, where the caller has `scope`.

    Raises:
        InsufficientScope: it has not.
    """
    if scope not in caller.scopes:
        exchange.headers["WWW-Authenticate"] = f'Bearer error="insufficient_scope", scope="{scope}"'
        raise InsufficientScope(f"This needs a token with the scope {scope}.")


def _bearer(request_headers: Headers, exchange: Exchange) -> str:
    given = request_headers.getlist("authorization")
    scheme, _, token = (given[0] if given else "").partition(" ")
    if scheme.lower() != "bearer":
        exchange.headers["WWW-Authenticate"] = "Bearer"
        raise InvalidToken("Send an access token: `Authorization: Bearer TOKEN`. POST /api/auth/token gives one.")
    if len(given) > 1:
        raise InvalidToken("Send one Authorization header.")
    return token.strip(" ")


def _check_standing(transaction: Transaction, credential: Credential) -> Standing:
    return check_standing(transaction.session, credential)


def _read_keys(transaction: Transaction) -> list[dict[str, str]]:
    return public_keys(transaction.session)
