"""compose.yaml agrees with the code: settings, secrets, ports, routes, drain times and memory."""

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from arachne import cli
from arachne.actors import dispatcher
from arachne.exposition import OFFSETS
from arachne.http import server
from arachne.settings import Settings

ROOT = Path(__file__).resolve().parents[2]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
OURS = {name: one for name, one in SERVICES.items() if one["image"] == "arachne-vision"}
GIB = 2**30


def test_every_setting_it_names_exists() -> None:
    """A name that was misspelt would be ignored in silence."""
    named = set(re.findall(r"ARACHNE_[A-Z_]+", (ROOT / "compose.yaml").read_text()))
    assert named <= {f"ARACHNE_{name.upper()}" for name in Settings.model_fields}


def test_secrets_are_files_that_settings_read() -> None:
    """Each has the name of a setting, is in no environment, and each service is given what it names."""
    declared = set(COMPOSE["secrets"])
    assert declared - {"postgres_password"} <= {f"arachne_{name}" for name in Settings.model_fields}
    for service in SERVICES.values():
        assert set(service.get("secrets", [])) <= declared
        assert declared.isdisjoint(name.lower() for name in service.get("environment", {}))
    assert SERVICES["postgres"]["environment"]["POSTGRES_PASSWORD_FILE"] == "/run/secrets/postgres_password"


def test_the_script_makes_every_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once; the URL has the server's password; settings read them."""
    (tmp_path / "scripts").mkdir()
    script = shutil.copy(ROOT / "scripts" / "secrets", tmp_path / "scripts")
    subprocess.run([script], check=True, capture_output=True)
    folder = tmp_path / ".secrets"
    first = {file.name: file.read_text() for file in folder.iterdir()}
    assert set(first) == set(COMPOSE["secrets"])
    assert folder.stat().st_mode & 0o777 == 0o700
    subprocess.run([script], check=True, capture_output=True)
    assert {file.name: file.read_text() for file in folder.iterdir()} == first
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ARACHNE_SECRETS_DIR", str(folder))
    monkeypatch.delenv("ARACHNE_DATABASE_URL", raising=False)
    assert Settings.load().database_url == f"postgresql://arachne:{first['postgres_password']}@postgres/arachne"


def test_health_checks_ask_where_the_code_listens() -> None:
    """The API's readiness, and the other parts' metrics."""
    port, base = Settings.model_fields["port"].default, Settings.model_fields["metrics_port"].default
    wanted = {"api": (port, "/readyz")} | {
        name: (base + OFFSETS[part], "/metrics")
        for name, part in {"gpu": "worker gpu", "io": "worker io", "scheduler": "scheduler"}.items()
    }
    for name, (number, route) in wanted.items():
        check = SERVICES[name]["healthcheck"]["test"][-1]
        assert f"'127.0.0.1', {number}," in check
        assert f"'GET', '{route}'" in check
    assert all("healthcheck" in one for name, one in SERVICES.items() if name != "migrate")


def test_every_service_is_confined() -> None:
    """Read-only root, no capabilities, bounded in memory, processors, processes and logs.

    Engines start nothing whose limit is above the processors of the machine, so whoever may use more than one has a
    share of them and no limit.
    """
    for service in SERVICES.values():
        assert service["read_only"]
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        limits = dict(service["deploy"]["resources"]["limits"])
        assert float(limits.pop("cpus", 0)) <= 1
        assert ("cpus" in service["deploy"]["resources"]["limits"]) != ("cpu_shares" in service)
        assert set(limits) == {"memory", "pids"}
        assert "max-size" in service["logging"]["options"]
    user = {service["user"] for service in OURS.values()}
    assert user == {re.findall(r"^USER (\S+)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)[-1]}


def test_any_setting_may_stand_in_a_file() -> None:
    """But none that moves what this file relies on: where health checks ask, where volumes and secrets are mounted."""
    for service in OURS.values():
        assert service["env_file"] == [{"path": ".env", "required": False}]
        fixed = {name for name, value in service["environment"].items() if "$" not in str(value)}
        relied_on = ("DATA_DIR", "SECRETS_DIR", "PORT", "METRICS_HOST", "METRICS_PORT", "MAX_TEMPORARY_BYTES")
        assert {f"ARACHNE_{name}" for name in relied_on} <= fixed
        assert int(service["environment"]["ARACHNE_PORT"]) == Settings.model_fields["port"].default
        assert int(service["environment"]["ARACHNE_METRICS_PORT"]) == Settings.model_fields["metrics_port"].default
    assert {"--host", "0.0.0.0"} <= set(SERVICES["api"]["command"])


def test_limits_agree_with_the_code() -> None:
    """Time to stop, and memory for the stage subprocesses, the second reader and the temporary files."""
    for service in OURS.values():
        assert float(service["stop_grace_period"].rstrip("s")) >= 15 + max(server.SHUTDOWN_S, dispatcher.STOP_S)
        assert service["environment"]["ARACHNE_MAX_TEMPORARY_BYTES"] < GIB
        assert service["tmpfs"] == ["/tmp:size=1g,mode=1777"]
    memory = float(SERVICES["gpu"]["deploy"]["resources"]["limits"]["memory"].rstrip("g")) * GIB
    assert memory >= (2 + 1) * Settings.model_fields["stage_memory_bytes"].default + GIB


def test_every_command_is_one_of_the_command_line() -> None:
    """Words and options are parsed by the real one; what `--help` answers with 0 it knows."""
    for name, service in OURS.items():
        words = [*service["command"], "--help"]
        assert CliRunner().invoke(cli.app, words).exit_code == 0, name
    assert CliRunner().invoke(cli.app, ["worker", "cpu", "--help"]).exit_code != 0


def test_the_image_has_what_services_are_given() -> None:
    """The Dockerfile's extras exist, its user is the services', and its data folder is where their volume is."""
    dockerfile = (ROOT / "Dockerfile").read_text()
    [extras] = re.findall(r"'arachne-vision\[([\w,]+)\]'", dockerfile)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert {"server", *extras.split(",")} <= set(project["optional-dependencies"])
    [user] = re.findall(r"^USER (\S+)$", dockerfile, re.MULTILINE)
    [data_dir] = re.findall(r"ARACHNE_DATA_DIR=(\S+)", dockerfile)
    for service in OURS.values():
        assert service["user"] == user
        assert service["environment"]["ARACHNE_DATA_DIR"] == data_dir
        assert f"data:{data_dir}" in service["volumes"]
    assert f"VOLUME {data_dir}\n" in dockerfile


def test_any_user_may_run_the_image() -> None:
    """Settings look for `.env` where they are run: a user's home, which only that user may enter, ends all others."""
    assert not re.search(r"WORKDIR|--create-home", (ROOT / "Dockerfile").read_text())


def test_it_is_what_the_compose_specification_allows() -> None:
    """Source: the Compose specification's own schema, as check-jsonschema carries it."""
    line = [Path(sys.executable).with_name("check-jsonschema"), "--builtin-schema", "vendor.compose-spec"]
    done = subprocess.run([*line, ROOT / "compose.yaml"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
