"""Secrets at rest: sealed to a key and a purpose, and the key file."""

import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr

from arachne.database import Database
from arachne.errors import SetupError
from arachne.secretbox import SecretBox, load_secret_keys, open_secret_box
from arachne.settings import Settings
from arachne.signing_keys import current_key

OLD, NEW = b"o" * 32, b"n" * 32


@given(st.binary(max_size=300), st.text(max_size=40))
def test_round_trip(secret: bytes, purpose: str) -> None:
    """What was sealed comes back, and is not visible in between."""
    box = SecretBox([NEW])
    sealed = box.encrypt(secret, purpose)
    assert box.decrypt(sealed, purpose) == secret
    assert len(secret) < 4 or secret not in sealed
    assert sealed != box.encrypt(secret, purpose)


@given(st.data())
def test_any_change_is_noticed(data: st.DataObject) -> None:
    """No altered, cut or extended value opens."""
    box = SecretBox([NEW])
    sealed = bytearray(box.encrypt(b"whsec_x", "webhook"))
    at = data.draw(st.integers(0, len(sealed) - 1))
    sealed[at] ^= data.draw(st.integers(1, 255))
    for damaged in (bytes(sealed), bytes(sealed[:at]), bytes(sealed) + b"x"):
        with pytest.raises(SetupError):
            box.decrypt(damaged, "webhook")


def test_purposes_are_apart() -> None:
    """A secret moved to another place in the database doesn't open there."""
    box = SecretBox([NEW])
    with pytest.raises(SetupError):
        box.decrypt(box.encrypt(b"x", "webhook:a"), "webhook:b")


def test_key_rotation() -> None:
    """The first key seals; older keys still open."""
    sealed = SecretBox([OLD]).encrypt(b"x", "p")
    both = SecretBox([NEW, OLD])
    assert both.decrypt(sealed, "p") == b"x"
    renewed = both.encrypt(b"x", "p")
    assert SecretBox([NEW]).decrypt(renewed, "p") == b"x"
    with pytest.raises(SetupError, match="another key"):
        SecretBox([NEW]).decrypt(sealed, "p")


def test_short_keys_are_refused() -> None:
    """A key that could be guessed stops the start."""
    for keys in ([], [b"short"]):
        with pytest.raises(SetupError):
            SecretBox(keys)
    with pytest.raises(SetupError, match="ARACHNE_SECRET_KEY"):
        load_secret_keys(Settings(secret_key="short"))


def test_key_from_settings() -> None:
    """Several keys are separated by commas, the current one first."""
    settings = Settings(secret_key=f"{NEW.decode()}, {OLD.decode()}")
    assert load_secret_keys(settings) == [NEW, OLD]


def test_key_file_is_made_once(tmp_path: Path) -> None:
    """Whoever starts first makes the key, readable by the owner alone; everybody gets the same and no draft is left."""
    settings = Settings(data_dir=tmp_path / "var")
    with ThreadPoolExecutor(8) as pool:
        keys = set(pool.map(lambda _: load_secret_keys(settings)[0], range(32)))
    assert len(keys) == 1
    assert len(keys.pop()) >= 32
    path = tmp_path / "var" / "secret.key"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(path.parent.iterdir()) == [path]
    assert open_secret_box(settings).decrypt(open_secret_box(settings).encrypt(b"x", "p"), "p") == b"x"


def test_bad_key_files_are_told(tmp_path: Path) -> None:
    """A key file others can read, or an empty one, stops the start with what to do."""
    path = tmp_path / "secret.key"
    path.write_bytes(NEW)
    path.chmod(0o644)
    with pytest.raises(SetupError, match="chmod 600"):
        load_secret_keys(Settings(data_dir=tmp_path))
    path.write_bytes(b"")
    path.chmod(0o600)
    with pytest.raises(SetupError, match=r"secret\.key"):
        load_secret_keys(Settings(data_dir=tmp_path))
    with pytest.raises(SetupError, match="can't be used"):
        load_secret_keys(Settings(data_dir=path))


def test_a_machine_with_another_key_does_not_start(database: Database, tmp_path: Path) -> None:
    """On a database that holds secrets a machine starts only with their key, and makes none of its own."""
    first = Settings(data_dir=tmp_path / "first", database_url=database.url)
    box = open_secret_box(first)
    database.run(lambda tx: current_key(tx.session, box))
    open_secret_box(first)

    second = Settings(data_dir=tmp_path / "second", database_url=database.url)
    with pytest.raises(SetupError, match="ARACHNE_SECRET_KEY"):
        open_secret_box(second)
    assert not (tmp_path / "second").exists()
    with pytest.raises(SetupError, match="another key"):
        open_secret_box(second.model_copy(update={"secret_key": SecretStr(NEW.decode())}))
    theirs = SecretStr((tmp_path / "first" / "secret.key").read_text().strip())
    open_secret_box(second.model_copy(update={"secret_key": theirs}))


def test_no_key_is_made_while_the_database_is_away(tmp_path: Path) -> None:
    """It might hold secrets of another key. With a key the machine starts, and waits for the database."""
    settings = Settings(data_dir=tmp_path / "new", database_url="postgresql://nobody@127.0.0.1:1/nothing")
    with pytest.raises(SetupError, match="start the database first"):
        open_secret_box(settings)
    assert not (tmp_path / "new").exists()
    open_secret_box(settings.model_copy(update={"secret_key": SecretStr(NEW.decode())}))


def test_a_key_made_meanwhile_beside_us_is_taken(database: Database, tmp_path: Path, monkeypatch) -> None:
    """Of two parts that start together one makes the key and uses it while the other still looks."""
    settings = Settings(data_dir=tmp_path, database_url=database.url)
    run = Database.run

    def late(self: Database, *args: object, **values: object) -> object:
        monkeypatch.setattr(Database, "run", run)
        box = SecretBox(load_secret_keys(settings))
        self.run(lambda tx: current_key(tx.session, box))
        return self.run(*args, **values)  # type: ignore[arg-type]

    monkeypatch.setattr(Database, "run", late)
    open_secret_box(settings)
