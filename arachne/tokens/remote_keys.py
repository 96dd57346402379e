"""The keys of another issuer, from its JWK set: fetched through the guard, kept while it is away."""

import asyncio
import logging
import time
from collections.abc import Collection, Mapping
from http import HTTPStatus

import aiohttp
import anyio.to_thread
from joserfc.jwk import Key

from arachne.errors import EgressBlocked, Unavailable
from arachne.net.client import guarded_session, open_exchange, read_bounded
from arachne.net.policy import EgressPolicy
from arachne.net.urls import CheckedUrl
from arachne.tokens.key_sets import parse_key_set

log = logging.getLogger(__name__)
FRESH_S = 300.0  # how long a key that its issuer withdrew may go on verifying
KEPT_S = 86_400.0  # how long the last good set is used while the issuer can't be asked
PAUSE_S = 10.0  # between two looks, however many tokens name unknown keys
TIMEOUT_S = 5.0
MAX_BYTES = 256 * 1024
_HEADERS = {"Accept": "application/jwk-set+json, application/json"}
_NEVER_S = float("-inf")


class RemoteKeys:
    """One issuer's keys in this process. Whoever needs a look shares it; nobody waits for one that isn't needed."""

    def __init__(self, name: str, url: CheckedUrl, policy: EgressPolicy, algorithms: Collection[str]) -> None:
        self._name, self._url, self._policy, self._algorithms = name, url, policy, algorithms
        self._keys: Mapping[str, Key] = {}
        self._good_s = self._began_s = _NEVER_S
        self._look: asyncio.Task[None] | None = None
        self.fault: str | None = None  # why the last look failed, for the operator

    async def keys_for(self, key_id: str) -> Mapping[str, Key]:
        """The keys by id; `key_id` is among them if its issuer publishes it.

        Raises:
            Unavailable: the issuer can't be asked, and its last answer is too old or doesn't know the key.
        """
        now_s = time.monotonic()
        if key_id in self._keys and now_s - self._good_s < KEPT_S:
            if now_s - self._good_s >= FRESH_S:
                self._refresh()
            return self._keys
        look = self._refresh()
        if look is not None:
            await asyncio.shield(look)  # others wait for it too
        if self._good_s < self._began_s or time.monotonic() - self._good_s >= KEPT_S:
            raise Unavailable("The token's issuer can't be asked for its keys; try again in a moment.")
        return self._keys

    async def close(self) -> None:
        """End a look that is under way."""
        if self._look is not None:
            self._look.cancel()
            await asyncio.gather(self._look, return_exceptions=True)

    def _refresh(self) -> "asyncio.Task[None] | None":
        """The look under way, or a new one unless the last has only just begun."""
        if self._look is not None and not self._look.done():
            return self._look
        if time.monotonic() - self._began_s < PAUSE_S:
            return None
        self._began_s = time.monotonic()
        self._look = asyncio.create_task(self._fetch())
        return self._look

    async def _fetch(self) -> None:
        try:
            data = await self._download()
            self._keys = await anyio.to_thread.run_sync(parse_key_set, data, self._algorithms)
        except (EgressBlocked, aiohttp.ClientError, OSError, ValueError) as error:  # a TimeoutError is an OSError
            self.fault = str(error) or type(error).__name__
            log.warning("keys of the issuer %s can't be had: %s", self._name, self.fault)
            return
        self._good_s, self.fault = time.monotonic(), None
        if not self._keys:
            log.warning("the issuer %s publishes no key for %s", self._name, ", ".join(self._algorithms))

    async def _download(self) -> bytes:
        """The set as published.

        Raises:
            ValueError: the answer is none.
            EgressBlocked, aiohttp.ClientError, OSError: there is none.
        """
        async with (
            guarded_session(self._policy, TIMEOUT_S) as session,
            open_exchange(session, "GET", self._url, headers=_HEADERS) as exchange,
        ):
            response = exchange.response
            if response.status != HTTPStatus.OK:
                raise ValueError(f"its server answered {response.status}")
            if response.headers.get("Content-Encoding", "identity").strip().lower() != "identity":
                raise ValueError("its server compresses what it was asked not to")
            data, is_cut = await read_bounded(response, MAX_BYTES)
        if is_cut:
            raise ValueError(f"its answer has more than {MAX_BYTES} bytes")
        return data
