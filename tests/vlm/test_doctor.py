"""What `arachne doctor` says of the model server."""

import pytest

from arachne.cli import checks
from arachne.settings import Settings
from tests.standins.process import OllamaProcess

pytestmark = pytest.mark.processes


def look(url: str, **settings: object) -> checks.Check:
    """The one finding."""
    return checks._vlm(Settings.load(vlm_url=url, **settings))


def test_versions_are_named_and_what_is_missing_is_told() -> None:
    """With the command that gets it."""
    with OllamaProcess(models={"small": "a" * 64, "large": "b" * 64}) as server:
        well = look(server.url, vlm_fast_model="small", vlm_large_model="large")
        missing = look(server.url, vlm_fast_model="small")
        wrong = look(server.url, vlm_api="openai")
    assert (well.state, well.found) == ("ok", f"small@{'a' * 12}, large@{'b' * 12}")
    assert missing.state == "warning"
    assert "ollama pull qwen2.5vl:32b" in missing.mend
    assert wrong.state == "failed"
    assert look(server.url).state == "failed"
