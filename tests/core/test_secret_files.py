"""Settings from files, as engines mount secrets."""

import os
from pathlib import Path

import pytest

from arachne.errors import SetupError
from arachne.secretbox import load_secret_keys
from arachne.settings import Settings


@pytest.fixture
def secrets_dir(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An empty folder that SECRETS_DIR names, and no other setting."""
    for name in [name for name in os.environ if name.startswith("ARACHNE_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "secrets"
    folder.mkdir()
    monkeypatch.setenv("ARACHNE_SECRETS_DIR", str(folder))
    return folder


def test_any_setting_may_stand_in_a_file(secrets_dir: Path) -> None:
    """The file is named as the variable; the newline that editors put at its end is not part of it."""
    (secrets_dir / "arachne_database_url").write_text("postgresql://arachne:word@postgres/arachne\n")
    (secrets_dir / "arachne_secret_key").write_text("0123456789abcdef0123456789abcdef\n")
    (secrets_dir / "arachne_vlm_api_key").write_text("token")
    (secrets_dir / "arachne_languages").write_text('["tha"]')
    (secrets_dir / "postgres_password").write_text("word")
    settings = Settings.load()
    assert settings.database_url == "postgresql://arachne:word@postgres/arachne"
    assert load_secret_keys(settings) == [b"0123456789abcdef0123456789abcdef"]
    assert settings.vlm_api_key is not None
    assert settings.vlm_api_key.get_secret_value() == "token"
    assert settings.languages == ["tha"]


def test_a_variable_wins_over_the_file(secrets_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And so does `.env`; the original system's names come last."""
    for name, word in (("redis_url", "file"), ("database_url", "file"), ("vlm_url", "http://file")):
        (secrets_dir / f"arachne_{name}").write_text(word)
    monkeypatch.setenv("ARACHNE_REDIS_URL", "variable")
    Path(".env").write_text("ARACHNE_VLM_URL=http://dotenv\n")
    monkeypatch.setenv("ARACHNE_COMPAT_ENV", "true")
    monkeypatch.setenv("DATABASE_URL", "theirs")
    settings = Settings.load()
    assert (settings.redis_url, settings.database_url, settings.vlm_url) == ("variable", "file", "http://dotenv")


def test_an_empty_file_is_as_good_as_none(secrets_dir: Path) -> None:
    """A key that a service is given but doesn't need stays unset."""
    (secrets_dir / "arachne_vlm_api_key").write_text("\n")
    assert Settings.load().vlm_api_key is None


def test_a_mounted_folder_of_links_is_read(secrets_dir: Path) -> None:
    """As Kubernetes mounts secrets, so that it can exchange them."""
    (secrets_dir / "..data").mkdir()
    (secrets_dir / "..data" / "arachne_redis_url").write_text("redis://there")
    (secrets_dir / "arachne_redis_url").symlink_to("..data/arachne_redis_url")
    assert Settings.load().redis_url == "redis://there"


def test_a_file_that_cant_be_read_is_named(secrets_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With its path and why, and never with what it holds."""
    file = secrets_dir / "arachne_secret_key"
    file.write_bytes(b"\xffword")
    with pytest.raises(SetupError, match=r"ARACHNE_SECRET_KEY: .*/arachne_secret_key can't be read") as told:
        Settings.load()
    assert "word" not in told.value.message

    def refuse(_: Path, **__: object) -> str:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "read_text", refuse)
    with pytest.raises(SetupError, match=r"ARACHNE_SECRET_KEY: .* can't be read \(Permission denied\)"):
        Settings.load()


def test_a_folder_that_was_named_has_to_be_there(secrets_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong path would otherwise start a service without its secrets. The usual one may be absent."""
    monkeypatch.setenv("ARACHNE_SECRETS_DIR", str(secrets_dir / "not"))
    with pytest.raises(SetupError, match="ARACHNE_SECRETS_DIR"):
        Settings.load()
    monkeypatch.delenv("ARACHNE_SECRETS_DIR")
    assert Settings.load().secrets_dir == Path("/run/secrets")
