"""The OpenAI-compatible backend against a real llama.cpp server, whose model is written on the spot."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from arachne.errors import VlmModelMissing, VlmRefused
from arachne.stages.describe import accept
from tests.vlm.conftest import Ask, Open

pytest.importorskip("xllamacpp", reason="the package xllamacpp, of the development group, is not installed")
ROOT = Path(__file__).resolve().parents[2]


@contextmanager
def serving(*files: Path) -> Iterator[str]:
    """URL of a server of these files."""
    command = [sys.executable, "-m", "tests.standins.llama_cpp", *files]
    with subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().removeprefix("ready ").strip()
        finally:
            process.kill()


@pytest.fixture(scope="module")
def write(tmp_path_factory: pytest.TempPathFactory) -> Callable[[], tuple[Path, Path]]:
    """Writes the model and its eye."""
    from tests.standins.tiny_model import write_eye, write_model

    def make() -> tuple[Path, Path]:
        folder = tmp_path_factory.mktemp("models")
        write_model(folder / "model.gguf")
        write_eye(folder / "eye.gguf")
        return folder / "model.gguf", folder / "eye.gguf"

    return make


@pytest.fixture(scope="module")
def seeing(write: Callable[[], tuple[Path, Path]]) -> Iterator[str]:
    """A server whose model takes pictures."""
    with serving(*write()) as url:
        yield url


@pytest.fixture(scope="module")
def blind(write: Callable[[], tuple[Path, Path]]) -> Iterator[str]:
    """A server whose model takes none."""
    with serving(write()[0]) as url:
        yield url


@pytest.mark.parametrize("size", [(640, 480), (30, 4000), (1, 1)])
async def test_a_picture_is_described(seeing: str, ask: Ask, opened: Open, size: tuple[int, int]) -> None:
    """The schema becomes a grammar the server takes, and the picture a data URI it decodes."""
    async with opened(seeing, vlm_api="openai") as backend:
        asked = ask("tiny", size)
        reply = await backend.describe(asked)
    assert accept(reply, asked).description == "ok"
    assert reply.model_version.startswith("tiny@")


async def test_the_server_proves_nothing_by_itself(seeing: str, ask: Ask, opened: Open) -> None:
    """Its `created` is the time of asking; only a revision the operator names makes descriptions cacheable."""
    async with opened(seeing, vlm_api="openai") as backend:
        unproven = await backend.describe(ask("tiny"))
    async with opened(seeing, vlm_api="openai", vlm_revision="1") as backend:
        proven = await backend.describe(ask("tiny"))
    async with opened(seeing, vlm_api="openai", vlm_revision="2") as backend:
        other = await backend.describe(ask("tiny"))
    assert (unproven.cacheable, proven.cacheable) == (False, True)
    assert len({unproven.model_version, proven.model_version, other.model_version}) == 3


async def test_its_models_are_listed(seeing: str, opened: Open) -> None:
    """With the size its file has, more or less."""
    async with opened(seeing, vlm_api="openai") as backend:
        (model,) = await backend.models()
    assert model.name == "tiny"
    assert model.size_bytes is not None
    assert 2_000_000 < model.size_bytes < 3_000_000


async def test_another_name_is_not_answered_by_the_model_there_is(seeing: str, ask: Ask, opened: Open) -> None:
    """The server itself would answer to any name."""
    async with opened(seeing, vlm_api="openai") as backend:
        with pytest.raises(VlmModelMissing, match=r"no 'other'; it has: tiny\."):
            await backend.describe(ask("other"))


async def test_a_blind_model_is_named_as_such(blind: str, ask: Ask, opened: Open) -> None:
    """It says so with status 500, and asking again would not help."""
    async with opened(blind, vlm_api="openai") as backend:
        with pytest.raises(VlmRefused, match="takes no pictures"):
            await backend.describe(ask("tiny"))


async def test_too_long_a_question_is_named_as_such(seeing: str, ask: Ask, opened: Open) -> None:
    """It is refused, not cut."""
    async with opened(seeing, vlm_api="openai") as backend:
        with pytest.raises(VlmRefused, match="context"):
            await backend.describe(ask("tiny", prompt="x" * 9000))


async def test_what_the_token_budget_cuts_is_told(seeing: str, ask: Ask, opened: Open) -> None:
    """The reason is `length`."""
    async with opened(seeing, vlm_api="openai") as backend:
        assert (await backend.describe(ask("tiny", max_tokens=5))).done_reason == "length"
