"""A running service as its clients reach it: at ARACHNE_URL, with ARACHNE_TOKEN or with client credentials."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from pydantic import SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict

from arachne import __version__
from arachne.errors import RequestError, SetupError, Unavailable

if TYPE_CHECKING:
    import httpx

_TIMEOUT_S = 90.0
_LOOPBACK = {"localhost", "127.0.0.1", "::1"}
_PAGE = 200


class ClientSettings(BaseSettings):
    """What a client needs; from the environment, with the prefix `ARACHNE_`, or a `.env`."""

    model_config = SettingsConfigDict(env_prefix="ARACHNE_", env_file=".env", extra="ignore", frozen=True)

    url: str = "http://127.0.0.1:8000"
    token: SecretStr | None = None
    client_id: str | None = None
    client_secret: SecretStr | None = None
    webhook_secret: SecretStr | None = None

    @property
    def has_credentials(self) -> bool:
        """Whether there is anything to sign in with."""
        return self.token is not None or bool(self.client_id and self.client_secret)


class Remote:
    """A signed-in client of the service."""

    def __init__(self, client: "httpx.Client") -> None:
        self._client = client

    def call(
        self, method: str, path: str, *, json: object = None, params: Mapping[str, str | int] | None = None
    ) -> dict[str, object]:
        """The answer's object, empty where there is none.

        Raises:
            RequestError: the service refused; says why.
            Unavailable: the service can't be reached, or can't serve now.
        """
        return _call(self._client, method, path, json=json, params=params)

    def every(self, path: str, params: Mapping[str, str | int] | None = None) -> Iterator[dict[str, object]]:
        """Every member of a list, page after page.

        Raises:
            RequestError, Unavailable: as `call`.
        """
        cursor: object = None
        while True:
            place = {"cursor": str(cursor)} if cursor else {}
            page = self.call("GET", path, params={"limit": _PAGE, **(params or {}), **place})
            rows, cursor = page["data"], page["next_cursor"]
            assert isinstance(rows, list)
            yield from rows
            if cursor is None:
                return


@contextmanager
def connect(settings: ClientSettings) -> Iterator[Remote]:
    """The service, signed in to.

    Raises:
        SetupError: there is nothing to sign in with, or the URL is none.
        RequestError: the credentials are refused.
        Unavailable: the service can't be reached.
    """
    import httpx

    if not settings.has_credentials:
        raise SetupError("Set ARACHNE_TOKEN, or ARACHNE_CLIENT_ID and ARACHNE_CLIENT_SECRET; ARACHNE_URL names where.")
    parts = urlsplit(settings.url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise SetupError(f"ARACHNE_URL is {settings.url!r}, no http:// or https:// URL. Set it to the service's.")
    with httpx.Client(
        base_url=settings.url,
        timeout=_TIMEOUT_S,
        trust_env=parts.hostname not in _LOOPBACK,
        headers={"User-Agent": f"arachne/{__version__}"},
    ) as client:
        client.headers["Authorization"] = f"Bearer {_token(client, settings)}"
        yield Remote(client)


def _token(client: "httpx.Client", settings: ClientSettings) -> str:
    if settings.token is not None:
        return settings.token.get_secret_value()
    assert settings.client_id
    assert settings.client_secret
    credentials = (settings.client_id, settings.client_secret.get_secret_value())
    form = {"grant_type": "client_credentials"}
    return str(_call(client, "POST", "/api/auth/token", data=form, auth=credentials)["access_token"])


def _call(
    client: "httpx.Client",
    method: str,
    path: str,
    *,
    json: object = None,
    params: Mapping[str, str | int] | None = None,
    data: Mapping[str, str] | None = None,
    auth: tuple[str, str] | None = None,
) -> dict[str, object]:
    import httpx

    try:
        answer = client.request(method, path, json=json, params=params, data=data, auth=auth)
    except httpx.HTTPError as error:
        raise Unavailable(
            f"{client.base_url} can't be reached: {error or type(error).__name__}. Check ARACHNE_URL and that the "
            "service runs."
        ) from None
    found = _object(answer)
    if answer.is_success:
        return found
    told = f"The service refused with {answer.status_code}: {_reason(found)}"
    raise Unavailable(told) if answer.status_code >= 500 else RequestError(told)


def _object(answer: "httpx.Response") -> dict[str, object]:
    try:
        found = answer.json()
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _reason(problem: Mapping[str, object]) -> str:
    """What a problem, or the token endpoint's error, says."""
    text = problem.get("detail") or problem.get("error_description") or "no reason given"
    code = problem.get("code") or problem.get("error")
    faults = problem.get("errors")
    told = [f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in faults] if isinstance(faults, list) else []
    return "; ".join([f"{text} ({code})" if code else str(text), *told])
