"""What a client is made with: addresses, tokens and proxies that can be none are told before anything is sent."""

import pytest

from arachne.client import AsyncClient, ClientSettings
from arachne.errors import SetupError


@pytest.mark.parametrize("url", ["http://[v1.x]/", "http://x\x01y", "http://[", "http://x:99999", "ftp://x", "x"])
def test_an_address_that_can_be_none_is_refused(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anything is sent, with the variable that names it."""
    with pytest.raises(SetupError, match="ARACHNE_URL"):
        AsyncClient(url, token="t")
    monkeypatch.setenv("ARACHNE_TOKEN_URL", url)
    with pytest.raises(SetupError, match="ARACHNE_TOKEN_URL"):
        AsyncClient("http://127.0.0.1:9", client_id="c", client_secret="s")


@pytest.mark.parametrize("token", ["secret token", "ก-token", "a\x00b"])
def test_a_token_that_can_be_none_is_refused_without_being_shown(token: str) -> None:
    """Before anything is sent."""
    with pytest.raises(SetupError) as refused:
        AsyncClient("http://127.0.0.1:9", token=token)
    assert token not in refused.value.message


@pytest.mark.parametrize("proxy", ["socks5://127.0.0.1:9", "ftp://127.0.0.1:9", "http://[::1"])
def test_a_proxy_that_can_not_be_used_is_told(proxy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """But where the service is on this machine, and no proxy is asked."""
    monkeypatch.setenv("ALL_PROXY", proxy)
    with pytest.raises(SetupError, match="ALL_PROXY"):
        AsyncClient("http://service.example", token="t")
    AsyncClient("http://127.0.0.1:9", token="t")


def test_a_token_loses_the_end_of_its_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """As files and shells leave it; an empty one is none."""
    monkeypatch.setenv("ARACHNE_TOKEN", "a-token\n")
    settings = ClientSettings()
    assert settings.token is not None
    assert settings.token.get_secret_value() == "a-token"
    monkeypatch.setenv("ARACHNE_TOKEN", "")
    assert not ClientSettings().has_credentials
