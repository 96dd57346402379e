"""Where the service is and what to sign in with, from the environment."""

import re
from typing import Self
from urllib.parse import urlsplit

import httpx2
from pydantic import SecretStr, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from arachne.errors import SetupError

TOKEN = re.compile(r"[A-Za-z0-9._~+/=-]+")  # Source: RFC 6750 §2.1
_LOOPBACK = {"localhost", "127.0.0.1", "::1"}


class ClientSettings(BaseSettings):
    """What a client needs; from the environment, with the prefix `ARACHNE_`, or a `.env`.

    `token` is an access token as it is; else one is fetched with `client_id` and `client_secret`, from the service or
    from the `token_url` of another issuer that the service trusts.
    """

    model_config = SettingsConfigDict(env_prefix="ARACHNE_", env_file=".env", extra="ignore", frozen=True)

    url: str = "http://127.0.0.1:8000"
    token: SecretStr | None = None
    client_id: str | None = None
    client_secret: SecretStr | None = None
    token_url: str | None = None
    scope: str | None = None
    webhook_secret: SecretStr | None = None

    @field_validator("token", mode="after")
    @classmethod
    def _trim(cls, token: SecretStr | None) -> SecretStr | None:
        """Without the line's end that files and shells leave; an empty one is none."""
        told = token.get_secret_value().strip() if token is not None else ""
        return SecretStr(told) if told else None

    @classmethod
    def load(cls) -> Self:
        """What the environment and `.env` say.

        Raises:
            SetupError: `.env` can't be read.
        """
        try:
            return cls()
        except (OSError, UnicodeDecodeError) as error:
            raise SetupError(f"The file .env can't be read: {error}. Mend it, or run this elsewhere.") from None

    @property
    def has_credentials(self) -> bool:
        """Whether there is anything to sign in with."""
        return self.token is not None or bool(self.client_id and self.client_secret)

    @property
    def is_local(self) -> bool:
        """Whether the service is on this machine, so that no proxy leads there."""
        return urlsplit(self.url).hostname in _LOOPBACK

    def with_given(self, url: str | None, client_id: str | None, client_secret: str | None, token: str | None) -> Self:
        """The same with what a program gave itself, which outdoes what the environment has."""
        given: dict[str, object] = {"url": url} if url is not None else {}
        if token is not None:
            given |= {"token": SecretStr(token.strip())}
        elif client_id is not None or client_secret is not None:
            given |= {"token": None, "client_id": client_id or self.client_id}
            given |= {"client_secret": SecretStr(client_secret)} if client_secret is not None else {}
        return self.model_copy(update=given)

    def check(self) -> None:
        """Nothing, where this is enough to sign in with.

        Raises:
            SetupError: there is nothing to sign in with, or the URL is none.
        """
        if not self.has_credentials:
            raise SetupError(
                "Set ARACHNE_TOKEN, or ARACHNE_CLIENT_ID and ARACHNE_CLIENT_SECRET; ARACHNE_URL names where."
            )
        if self.token is not None and not TOKEN.fullmatch(self.token.get_secret_value()):
            raise SetupError("ARACHNE_TOKEN is no token: it has characters that none has. Copy it anew.")
        self.check_url()

    def check_url(self) -> None:
        """Nothing, where the service's URL is one.

        Raises:
            SetupError: it is none.
        """
        if not is_http_url(self.url):
            raise SetupError(f"ARACHNE_URL is {self.url!r}, no http:// or https:// URL. Set it to the service's.")
        if self.token_url is not None and not is_http_url(self.token_url):
            raise SetupError(f"ARACHNE_TOKEN_URL is {self.token_url!r}, no http:// or https:// URL.")


def is_http_url(text: str) -> bool:
    """Whether requests can be sent there."""
    try:
        httpx2.URL(text)
        parts = urlsplit(text)
        return parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except (ValueError, httpx2.InvalidURL):
        return False
