"""Access tokens, fetched with Authlib and renewed before they expire.

Of Authlib's client only `fetch_token` is used. Its own authentication would read every request's body into memory,
which streamed uploads are sent to avoid; it takes a token of a minute or less for one that has expired and fetches
another for each request; and it knows nothing of a token that is refused before its time.
"""

import asyncio
import time
from typing import TYPE_CHECKING

import httpx2
from authlib.common.errors import AuthlibBaseError

from arachne.client.refusals import read_refusal, read_retry_after
from arachne.client.settings import TOKEN, ClientSettings
from arachne.errors import (
    ArachneError,
    InsufficientScope,
    InvalidToken,
    RequestError,
    SetupError,
    UnexpectedAnswer,
    Unreachable,
)
from arachne.strict_json import parse

if TYPE_CHECKING:
    from authlib.integrations.httpx_client import AsyncOAuth2Client

_LEEWAY_S = 60.0  # of a token's life, or a fifth of a short one
_UNTOLD_LIFE_S = 300.0  # where the endpoint doesn't say


class TokenSource:
    """The token to send now; one is fetched at a time, however many wait for it."""

    def __init__(
        self,
        settings: ClientSettings,
        endpoint: str,
        *,
        timeout: httpx2.Timeout,
        transport: httpx2.AsyncBaseTransport | None,
    ) -> None:
        self._settings = settings
        self._endpoint = endpoint
        self._timeout = timeout
        self._transport = transport
        self._oauth: AsyncOAuth2Client | None = None
        self._lock = asyncio.Lock()
        self._token = settings.token.get_secret_value() if settings.token is not None else None
        self._renew_at_s = float("inf")

    @property
    def is_fixed(self) -> bool:
        """Whether the token was given and there is no other."""
        return self._settings.token is not None

    async def get(self) -> str:
        """The token.

        Raises:
            ArachneError: there is none to be had; says why.
        """
        if (token := self._fresh()) is not None:
            return token
        async with self._lock:
            return self._fresh() or await self._fetch()

    def refuse(self, token: str) -> None:
        """Note that the service doesn't take this token, so that the next one asked for is another."""
        if self._token == token and not self.is_fixed:
            self._token = None

    async def close(self) -> None:
        """Close the connections."""
        if self._oauth is not None:
            await self._oauth.aclose()

    def _fresh(self) -> str | None:
        return self._token if time.monotonic() < self._renew_at_s else None

    async def _fetch(self) -> str:
        asked_at_s = time.monotonic()
        try:
            answer = await self._client().fetch_token(self._endpoint, grant_type="client_credentials")
        except httpx2.HTTPError as error:
            raise Unreachable(
                f"{self._endpoint} can't be reached for a token: {error or type(error).__name__}. Check ARACHNE_URL."
            ) from None
        except (ValueError, AttributeError, RecursionError, AuthlibBaseError) as error:
            if isinstance(error, UnicodeEncodeError):
                raise SetupError(
                    "The client id or secret has characters that none of ours has. Copy them anew."
                ) from None
            raise UnexpectedAnswer(f"{self._endpoint} answered with no token. Check ARACHNE_URL.") from None
        if not isinstance(answer, dict):
            raise UnexpectedAnswer(f"{self._endpoint} answered with no token. Check ARACHNE_URL.")
        token, life_s = answer.get("access_token"), answer.get("expires_in")
        if not isinstance(token, str) or not TOKEN.fullmatch(token):
            raise UnexpectedAnswer(f"{self._endpoint} answered without an access token. Check ARACHNE_URL.")
        life_s = float(life_s) if isinstance(life_s, int | float) and life_s > 0 else _UNTOLD_LIFE_S
        self._token, self._renew_at_s = token, asked_at_s + life_s - min(_LEEWAY_S, life_s / 5)
        return token

    def _client(self) -> "AsyncOAuth2Client":
        if self._oauth is None:
            from authlib.integrations.httpx_client import AsyncOAuth2Client  # noqa: PLC0415  # takes a tenth of a second

            secret = self._settings.client_secret
            self._oauth = AsyncOAuth2Client(
                self._settings.client_id,
                secret.get_secret_value() if secret is not None else None,
                scope=self._settings.scope,
                timeout=self._timeout,
                transport=self._transport,
                trust_env=not self._settings.is_local,
            )
            self._oauth.register_compliance_hook("access_token_response", _check)
        return self._oauth


def _check(response: httpx2.Response) -> httpx2.Response:
    """The token endpoint's answer, where it is a token; Authlib loses a refusal's status and `Retry-After`."""
    if response.is_success:
        return response
    raise _refusal(response)


def _refusal(response: httpx2.Response) -> ArachneError:
    """Why there is no token. Source: RFC 6749 §5.2."""
    try:
        told = parse(response.content)
    except ValueError:
        told = None
    if response.status_code in {429, 503} or not isinstance(told, dict) or "error" not in told:
        return read_refusal(response)
    word, text = str(told["error"]), str(told.get("error_description") or "no reason given")
    message = f"No token was given: {text.removesuffix('.')} ({word})"
    error: RequestError
    if word in {"invalid_client", "unauthorized_client"}:
        error = InvalidToken(f"{message}. Check ARACHNE_CLIENT_ID and ARACHNE_CLIENT_SECRET.")
    elif word == "invalid_scope":
        error = InsufficientScope(f"{message}. Ask for scopes that the client was granted.")
    else:
        error = RequestError(f"{message}.")
    error.retry_after_s = read_retry_after(response)
    return error
