"""The whole pipeline on rendered screenshots, whose text the browser wrote down, and on pictures that trip it."""

import io
import json
import pickle
import shutil
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageFont

from arachne import languages
from arachne.errors import DecodeFailed, OutOfMemory, ReadFailed
from arachne.pipeline import (
    STAGES,
    ReadRequest,
    described,
    looking,
    needed_stages,
    options_hash,
    pipeline_version,
    prepare_description,
    read_image,
    undescribed,
)
from arachne.pipeline import run as running
from arachne.schemas.options import Options
from arachne.schemas.result import STAGE_NAMES, Result, Vlm
from arachne.stages.arrays import Size
from arachne.stages.enhance import Enhanced
from arachne.stages.read import Reading
from arachne.stages.upright import Upright

pytestmark = pytest.mark.processes

IMAGES = Path(__file__).parent.parent / "images"
PICTURES = sorted(path.stem for path in IMAGES.glob("*.png"))


@pytest.fixture(scope="session")
def tessdata_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return languages.merge(None, tmp_path_factory.mktemp("tessdata"))


@pytest.fixture
def ask(tessdata_dir: Path):
    """Makes requests with given options."""

    def request(*, vlm_configured: bool = False, **options: object) -> ReadRequest:
        return ReadRequest(Options(**options), ("eng",), tessdata_dir, 2_000_000, 5, 100, vlm_configured=vlm_configured)

    return request


def word_f1(truth: str, reading: str) -> float:
    """The order-free F1 of words."""
    a, b = Counter(truth.split()), Counter(reading.split())
    return 2 * (a & b).total() / (a.total() + b.total())


def drawn(*texts: str, image_format: str = "PNG") -> bytes:
    pages = []
    for text in texts:
        page = Image.new("RGB", (420, 90), "white")
        ImageDraw.Draw(page).text((20, 25), text, fill="black", font=ImageFont.load_default(28))
        pages.append(page)
    out = io.BytesIO()
    more = {"save_all": True, "append_images": pages[1:]} if len(pages) > 1 else {}
    pages[0].save(out, image_format, **more)
    return out.getvalue()


def statuses(result: Result) -> dict[str, tuple[str, str | None]]:
    return {stage.name: (stage.status, stage.reason) for stage in result.stages}


@pytest.mark.parametrize("name", PICTURES)
def test_rendered_screenshots_are_read(name: str, ask) -> None:
    result = read_image((IMAGES / f"{name}.png").read_bytes(), ask())
    truth = (IMAGES / f"{name}.txt").read_text()
    assert result.text is not None
    assert word_f1(truth, result.text) >= 0.9
    assert not result.degraded
    assert (result.geometry.rotation_deg, result.geometry.skew_deg) == (0, 0)
    json.dumps(result.model_dump(), allow_nan=False).encode()
    for block in result.blocks:
        for word in (word for line in block.lines for word in line.words):
            x, y, width, height = word.bbox
            assert 0 <= x <= x + width <= result.image.width
            assert 0 <= y <= y + height <= result.image.height


def test_tables_code_and_columns_are_told(ask) -> None:
    invoice, editor, columns = (
        read_image((IMAGES / f"{name}.png").read_bytes(), ask())
        for name in ("invoice_table", "editor_dark", "two_columns")
    )
    assert (invoice.tables[0].rows, invoice.tables[0].columns) == (6, 5)
    assert "| B-031 | Printer ribbon | 3 | 21.50 | 64.50 |" in invoice.markdown
    assert "        for item in self.items:\n            if item.taxed:" in editor.text
    assert columns.text.index("floodlight until the tide turned") < columns.text.index("The ferry to the islands")


def test_every_stage_reports(ask) -> None:
    result = read_image(drawn("Hello there"), ask())
    assert [stage.name for stage in result.stages] == list(STAGE_NAMES) == [stage.name for stage in STAGES]
    assert statuses(result)["describe"] == ("skipped", "not_configured")
    assert {status for status, _ in statuses(result).values()} == {"ok", "skipped"}
    assert (result.degraded, result.model_version, result.vlm) == (False, "none", None)
    assert result.text == "Hello there"
    assert result.languages == ["eng"]


@pytest.mark.parametrize("stage", STAGE_NAMES)
def test_asked_for_stages_bring_those_they_need_and_no_more(stage: str, ask) -> None:
    request = ask(stages=[stage])
    result = read_image(drawn("Hello there"), request)
    ran = STAGE_NAMES[: STAGE_NAMES.index(stage) + 1]
    assert needed_stages(request.options) == ran
    told = statuses(result)
    assert [name for name, (_, reason) in told.items() if reason == "not_requested"] == list(STAGE_NAMES[len(ran) :])
    assert (result.quality is not None) == (result.visual is not None) == ("assess" in ran)
    assert (result.geometry is not None) == ("upright" in ran)
    assert (result.text is not None) == (result.confidence is not None) == ("read" in ran)
    assert (result.blocks is not None) == (result.markdown is not None) == ("structure" in ran)


def test_fast_leaves_the_description_out(ask) -> None:
    assert needed_stages(Options(detail_level="fast")) == STAGE_NAMES[:-1]
    assert statuses(read_image(drawn("Hi"), ask(detail_level="fast")))["describe"] == ("skipped", "not_requested")


def test_frames_become_pages(ask) -> None:
    data = drawn("Page one", "Page two", "Page three", image_format="TIFF")
    result = read_image(data, ask(frames="all"))
    assert result.text == "Page one\fPage two\fPage three"
    assert [page.text for page in result.pages] == ["Page one", "Page two", "Page three"]
    assert all(page.pages is None for page in result.pages)
    assert result.image.frames == 3
    first = read_image(data, ask())
    assert (first.text, first.pages) == ("Page one", None)
    assert "2 to 3" in first.image.warnings[0]


@pytest.mark.parametrize("shape", [(1, 1), (1, 3000), (3000, 1), (40, 40)])
@pytest.mark.parametrize("level", [0, 255])
def test_pictures_without_text_are_no_failure(shape: tuple[int, int], level: int, ask) -> None:
    out = io.BytesIO()
    Image.fromarray(np.full((*shape, 3), level, np.uint8)).save(out, "PNG")
    result = read_image(out.getvalue(), ask())
    assert (result.text, result.blocks, result.degraded) == ("", [], False)


@pytest.mark.parametrize("stage", ["assess", "upright", "enhance", "segment", "structure"])
def test_a_failing_stage_degrades(stage: str, ask, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("by zero")

    monkeypatch.setattr(looking if stage in {"upright", "enhance", "segment"} else running, stage, broken)
    result = read_image(drawn("Hello there"), ask())
    assert result.degraded
    assert statuses(result)[stage] == ("failed", "ZeroDivisionError: by zero")
    assert result.text.split() == ["Hello", "there"]


def test_failing_to_decode_or_read_fails_the_image(ask, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DecodeFailed) as caught:
        read_image(drawn("Hello")[:33], ask())
    assert pickle.loads(pickle.dumps(caught.value)).stage == "decode"

    def broken(*_: object) -> None:
        raise ReadFailed("no reader")

    monkeypatch.setattr(looking, "read_twice", broken)
    with pytest.raises(ReadFailed) as caught:
        read_image(drawn("Hello"), ask())
    assert caught.value.stage == "read"


@pytest.mark.parametrize("stage", ["assess", "read"])
def test_too_little_memory_names_the_stage(stage: str, ask, monkeypatch: pytest.MonkeyPatch) -> None:
    def greedy(*_: object) -> None:
        raise MemoryError

    module, name = (looking, "read_twice") if stage == "read" else (running, stage)
    monkeypatch.setattr(module, name, greedy)
    with pytest.raises(OutOfMemory) as caught:
        read_image(drawn("Hello"), ask())
    assert caught.value.stage == stage


def test_requests_cross_process_borders(ask) -> None:
    request = ask(detail_level="fast")
    assert pickle.loads(pickle.dumps(request)) == request


def test_options_hash_changes_with_what_changes_the_result() -> None:
    def told(chosen: tuple[str, ...] = ("eng",), **options: object) -> str:
        return options_hash(Options(**options), chosen)

    same = {told(), told(cache="bypass"), told(detail_level="standard"), told(languages=["auto"])}
    same.add(told(stages=["describe"]))
    assert len(same) == 1
    others = {
        told(("eng", "tha")),
        told(("tha", "eng")),
        told(detail_level="fast"),
        told(detail_level="detailed"),
        told(frames="all"),
        told(profile="slip"),
        told(stages=["read"]),
        told(prompt="Look for buttons"),
        told(model="qwen2.5vl:7b"),
    }
    assert len(others | same) == 10
    assert told(stages=["read"], prompt="unused") == told(stages=["read"])


def test_pipeline_version_changes_with_language_data(tessdata_dir: Path, tmp_path: Path) -> None:
    shutil.copytree(tessdata_dir, tmp_path / "same")
    before = pipeline_version(tmp_path / "same")
    assert before == pipeline_version(tessdata_dir)
    (tmp_path / "same" / "tha.traineddata").write_bytes(b"thai")
    assert pipeline_version(tmp_path / "same") != before


def test_a_description_is_added_or_its_lack_told(ask) -> None:
    request = ask(vlm_configured=True)
    result = read_image(drawn("Hello there"), request)
    assert statuses(result)["describe"] == ("skipped", "deferred")
    question = prepare_description(drawn("Hello there"), result.text, request, "some-model")
    assert (question.model, question.sent, question.text) == ("some-model", Size(420, 90), "Hello there")
    vlm = Vlm(model="some-model@1234", description="A greeting", elements=[], unsupported_text=[])
    better = described(result, vlm, 812.0)
    assert (better.vlm, better.model_version, better.degraded) == (vlm, "some-model@1234", False)
    assert statuses(better)["describe"] == ("ok", None)
    worse = undescribed(result, "the model server is down", 5.0)
    assert (worse.vlm, worse.degraded) == (None, True)
    assert statuses(worse)["describe"] == ("degraded", "the model server is down")


def test_of_several_pages_the_first_is_described(ask) -> None:
    """The others say that nobody was asked about them, and none is left waiting."""
    result = read_image(drawn("First page", "Second page", image_format="TIFF"), ask(vlm_configured=True, frames="all"))
    vlm = Vlm(model="some-model@1234", description="A greeting", elements=[], unsupported_text=[])
    better = described(result, vlm, 812.0)
    assert [page.vlm for page in better.pages] == [vlm, None]
    assert [statuses(page)["describe"] for page in better.pages] == [("ok", None), ("skipped", "first_page_only")]
    assert {page.model_version for page in [better, *better.pages]} == {"some-model@1234"}
    worse = undescribed(result, "the model server is down", 5.0)
    assert [page.degraded for page in [worse, *worse.pages]] == [True, True, False]


@pytest.mark.parametrize(("scale", "warned"), [(0.5, True), (1.0, False)])
def test_text_too_small_to_be_read_is_warned_of(
    scale: float, ask, monkeypatch: pytest.MonkeyPatch, *, warned: bool
) -> None:
    """Marks 16 px high on a picture so large that it is read at half its size, and no word among them."""
    marks = np.tile(np.array([[5, 5, 8, 16, 60]], np.int32), (6000, 1))
    turned = Upright(np.full((40, 40, 3), 255, np.uint8), 0, 0.0, np.eye(3), 16.0, marks)
    enhanced = Enhanced(np.full((40, 40), 255, np.uint8), scale, np.eye(3), 0.0)
    page = looking.ReadPage(turned, enhanced, Reading((), 0.0, None), ("eng",))
    monkeypatch.setattr(running, "read_page", lambda *_: page)
    warnings = read_image(drawn("Hello"), ask()).image.warnings
    assert [warning.partition(":")[0] for warning in warnings] == ["text_too_small"] * warned
