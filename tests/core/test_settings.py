"""Settings: read from the environment, refused with the variable's name, documented where users look."""

import subprocess
import sys
from pathlib import Path

import pytest

from arachne.errors import SetupError
from arachne.schemas.limits import parse_rate
from arachne.settings import Settings

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No setting of the developer's machine leaks in."""
    import os

    for name in [name for name in os.environ if name.startswith("ARACHNE_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


def test_every_setting_is_read_from_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers, lists and paths arrive typed."""
    monkeypatch.setenv("ARACHNE_MAX_IMAGE_BYTES", "123")
    monkeypatch.setenv("ARACHNE_WEBHOOK_RETRY_SECONDS", "[0.5, 2]")
    monkeypatch.setenv("ARACHNE_DATA_DIR", "/somewhere/else")
    settings = Settings.load()
    assert (settings.max_image_bytes, settings.webhook_retry_seconds) == (123, [0.5, 2])
    assert settings.data_dir == Path("/somewhere/else")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PORT", "70000"),
        ("VISION_RATE_LIMIT", "often"),
        ("VISION_RATE_LIMIT", "0/minute"),
        ("LANGUAGES", "[]"),
        ("LANGUAGES", "eng"),
        ("LEASE_S", "-1"),
        ("WEBHOOK_RETRY_SECONDS", "[-5]"),
        ("CACHE_SCOPE", "everybody"),
    ],
)
def test_a_wrong_value_names_its_variable(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    """The error says which variable is wrong, so that it can be mended."""
    monkeypatch.setenv(f"ARACHNE_{name}", value)
    with pytest.raises(SetupError, match=f"ARACHNE_{name}"):
        Settings.load()


def test_what_is_promised_holds_where_nothing_is_set() -> None:
    """Clients and integrators rely on these: limits, sizes, the retries of a webhook, how long things are kept."""
    minute, hour, day, mib = 60, 3600, 86_400, 2**20
    promised = {
        "vision_rate_limit": "20/minute",
        "image_rate_limit": "600/minute",
        "read_rate_limit": "1200/minute",
        "other_rate_limit": "300/minute",
        "max_image_bytes": 20 * mib,
        "max_image_pixels": 50_000_000,
        "max_images_per_job": 500,
        "max_request_bytes": 256 * mib,
        "max_json_bytes": 32 * mib,
        "idempotency_ttl_s": day,
        "webhook_timeout_s": 15,
        "webhook_retry_seconds": [
            5, 5 * minute, 30 * minute, 2 * hour, 5 * hour, 10 * hour, 14 * hour, 20 * hour, 24 * hour,
        ],
        "webhook_disable_after_s": 5 * day,
        "webhook_inline_bytes": 20_000,
        "cache_scope": "account",
        "metrics_host": "127.0.0.1",
        "soft_time_limit_s": 100,
        "hard_time_limit_s": 120,
        "stage_images": 50,
    }  # fmt: skip
    assert Settings.load().model_dump(include=set(promised)) == promised


def test_overrides_win_over_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Command-line flags beat variables; flags that were not given don't."""
    monkeypatch.setenv("ARACHNE_PORT", "1234")
    assert Settings.load(port=4321).port == 4321
    assert Settings.load(port=None).port == 1234


def test_the_base_url_comes_from_settings_alone() -> None:
    """PUBLIC_URL wins, without its trailing slash; an IPv6 host is bracketed."""
    assert Settings.load(public_url="https://ocr.example/").base_url == "https://ocr.example"
    assert Settings.load(host="::1", port=9).base_url == "http://[::1]:9"


def test_an_address_nobody_can_call_needs_a_public_url() -> None:
    """Listening everywhere says nothing of how clients get here; tokens and links would name 0.0.0.0."""
    for host in ("0.0.0.0", "::"):
        with pytest.raises(SetupError, match="ARACHNE_PUBLIC_URL"):
            Settings.load(host=host).require_base_url()
        assert Settings.load(host=host, public_url="https://ocr.example").require_base_url()
    assert Settings.load().require_base_url().base_url == "http://127.0.0.1:8000"


@pytest.mark.parametrize(
    ("text", "window"), [("20/minute", (20, 60)), ("5/10 seconds", (5, 10)), ("1000/2hours", (1000, 7200))]
)
def test_rates(text: str, window: tuple[int, int]) -> None:
    """Rates are read as amount and seconds."""
    assert parse_rate(text) == window


@pytest.mark.parametrize("text", ["", "often", "0/minute", "2٠/minute", "20/fortnight", "20 / minute", "-1/second"])
def test_what_is_no_rate_is_refused(text: str) -> None:
    """Other alphabets' digits too: nobody would see what they limit."""
    with pytest.raises(ValueError, match="no rate"):
        parse_rate(text)


def test_the_readme_lists_every_setting() -> None:
    """The table in the README is the one made from the code."""
    script = ROOT / "scripts" / "settings_table"
    assert subprocess.run([sys.executable, script, "--check"], check=False).returncode == 0
