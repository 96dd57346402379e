"""The original system's variables: read when asked for, from the environment or `.env`, and never before ours."""

import os
from pathlib import Path

import pytest
from ollama import Client as OllamaClient

from arachne.cli import checks
from arachne.errors import SetupError
from arachne.original_names import ollama_url
from arachne.settings import Settings

ORIGINAL = {
    "DATABASE_URL": "postgresql://there/db",
    "REDIS_URL": "redis://there:6379/1",
    "OLLAMA_HOST": "http://gpu:11434",
    "MODEL_VERSION": "llava:13b",
}
READ_AS = {
    "DATABASE_URL": "database_url",
    "REDIS_URL": "redis_url",
    "OLLAMA_HOST": "vlm_url",
    "MODEL_VERSION": "vlm_fast_model",
}


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No variable and no `.env` of the developer's machine leaks in."""
    for name in [name for name in os.environ if name.startswith("ARACHNE_") or name in ORIGINAL]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("name", ORIGINAL)
@pytest.mark.parametrize("place", ["environment", "file"])
def test_each_is_read_only_when_asked_for(monkeypatch: pytest.MonkeyPatch, name: str, place: str) -> None:
    """Wherever it stands, and wherever the switch stands."""
    before = getattr(Settings.load(), READ_AS[name])
    lines = {name: ORIGINAL[name]}
    write(monkeypatch, place, lines)
    assert getattr(Settings.load(), READ_AS[name]) == before
    write(monkeypatch, place, lines | {"ARACHNE_COMPAT_ENV": "true"})
    assert getattr(Settings.load(), READ_AS[name]) == ORIGINAL[name]
    write(monkeypatch, place, lines | {"ARACHNE_COMPAT_ENV": "false"})
    assert getattr(Settings.load(), READ_AS[name]) == before


@pytest.mark.parametrize("name", ORIGINAL)
@pytest.mark.parametrize("place", ["environment", "file"])
def test_ours_win_wherever_they_stand(monkeypatch: pytest.MonkeyPatch, name: str, place: str) -> None:
    """Over the original's in the environment too, which is nearer than a file."""
    write(monkeypatch, "environment", ORIGINAL | {"ARACHNE_COMPAT_ENV": "true"})
    write(monkeypatch, place, {f"ARACHNE_{READ_AS[name].upper()}": "ours"})
    assert getattr(Settings.load(), READ_AS[name]) == "ours"
    assert getattr(Settings.load(**{READ_AS[name]: "told"}), READ_AS[name]) == "told"


def test_the_environment_wins_over_the_file_and_empty_ones_are_unset(monkeypatch: pytest.MonkeyPatch) -> None:
    """As for our own variables; an empty OLLAMA_HOST configures no model."""
    write(monkeypatch, "file", {"REDIS_URL": "redis://file", "ARACHNE_COMPAT_ENV": "1", "OLLAMA_HOST": ""})
    assert (Settings.load().redis_url, Settings.load().vlm_protocol) == ("redis://file", "none")
    write(monkeypatch, "environment", {"REDIS_URL": "redis://environment", "OLLAMA_HOST": "gpu"})
    assert (Settings.load().redis_url, Settings.load().vlm_protocol) == ("redis://environment", "ollama")


@pytest.mark.parametrize(
    "host",
    ["gpu", "gpu:1234", ":1234", "http://gpu", "https://gpu/", "https://gpu:1/ollama/", "[fd00::1]:5", "10.0.0.9/"],
)
def test_an_ollama_host_means_what_it_means_to_ollama(host: str) -> None:
    """Scheme and port may be missing: the public client's own reading of the variable is the known answer."""
    client = OllamaClient(host=host)
    try:
        assert ollama_url(host) == str(client._client.base_url).rstrip("/") + default_port(host)
    finally:
        client.close()


def default_port(host: str) -> str:
    """The client leaves a scheme's own port out of a URL."""
    return {"http://gpu": ":80", "https://gpu/": ":443"}.get(host, "")


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("0.0.0.0", "http://127.0.0.1:11434"),
        ("0.0.0.0:8080", "http://127.0.0.1:8080"),
        ("http://0.0.0.0:8080", "http://127.0.0.1:8080"),
        ("[::]:8080", "http://[::1]:8080"),
        (' "gpu:1234" ', "http://gpu:1234"),
    ],
)
def test_every_address_of_a_server_is_loopback_to_its_client(host: str, url: str) -> None:
    """The same variable tells a server where to listen."""
    assert ollama_url(host) == url


def test_a_wrong_one_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not the setting it would have been read as, unless ours made it needless."""
    write(monkeypatch, "environment", {"ARACHNE_COMPAT_ENV": "true", "OLLAMA_HOST": "gpu:many"})
    with pytest.raises(SetupError, match="OLLAMA_HOST"):
        Settings.load()
    monkeypatch.setenv("ARACHNE_VLM_URL", "http://gpu")
    assert Settings.load().vlm_url == "http://gpu"
    monkeypatch.setenv("ARACHNE_COMPAT_ENV", "perhaps")
    with pytest.raises(SetupError, match="ARACHNE_COMPAT_ENV"):
        Settings.load()


def test_doctor_says_what_was_read_from_where(monkeypatch: pytest.MonkeyPatch) -> None:
    """And what was not, since ours is set; no value is shown, since a URL holds a password."""
    write(monkeypatch, "file", {"DATABASE_URL": "postgresql://me:hush@there/db", "ARACHNE_REDIS_URL": "redis://here"})
    write(monkeypatch, "environment", {"REDIS_URL": "redis://there"})
    assert list(checks.original_names(Settings.load())) == []
    write(monkeypatch, "environment", {"ARACHNE_COMPAT_ENV": "true"})
    database, redis = checks.original_names(Settings.load())
    assert (database.name, database.state) == ("DATABASE_URL", "ok")
    assert database.found == "read from .env as ARACHNE_DATABASE_URL"
    assert (redis.name, redis.state, redis.found) == ("REDIS_URL", "warning", "in the environment, not used")
    assert "ARACHNE_REDIS_URL in .env" in redis.mend
    Path("secrets").mkdir()
    Path("secrets/arachne_database_url").write_text("postgresql://ours/db")
    write(monkeypatch, "environment", {"ARACHNE_SECRETS_DIR": "secrets"})
    assert Settings.load().database_url == "postgresql://ours/db"
    database, _ = checks.original_names(Settings.load())
    assert (database.state, "ARACHNE_SECRETS_DIR" in database.mend) == ("warning", True)


def write(monkeypatch: pytest.MonkeyPatch, place: str, variables: dict[str, str]) -> None:
    """Set variables in the environment, or write `.env` with them alone."""
    if place == "file":
        Path(".env").write_text("".join(f"{name}={value}\n" for name, value in variables.items()))
        return
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
