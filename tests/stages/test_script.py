"""Languages chosen by the script a picture is written in."""

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from arachne import languages
from arachne.errors import ReadFailed
from arachne.pipeline import ReadRequest, read_image
from arachne.schemas.options import Options
from arachne.stages import tesseract
from arachne.stages.arrays import Box, Gray
from arachne.stages.engine import EngineWord, Script
from arachne.stages.enhance import EnhanceOptions, enhance
from arachne.stages.script import choose_languages, probing_languages
from arachne.stages.segment import Region, SegmentOptions, segment

SLIPS = Path(__file__).parent.parent / "images" / "slips"
THAI = "โอนเงินสำเร็จ"
REGION = Region("text", Box(10, 10, 200, 30), 20, 1, (Box(10, 10, 90, 30), Box(110, 10, 90, 30)))
GRAY = np.full((60, 240), 255, np.uint8)


@pytest.fixture
def folder(tmp_path: Path) -> Callable[..., Path]:
    """Makes a folder that looks as if these languages' data were in it."""

    def make(*codes: str) -> Path:
        for code in codes:
            (tmp_path / f"{code}.traineddata").touch()
        return tmp_path

    return make


class ScriptedEngine:
    """An engine that finds given words, and notes the languages it was asked in."""

    def __init__(self, *words: tuple[str, float]) -> None:
        self.words = tuple(EngineWord(text, Box(0, 0, 9, 9), confidence, 0) for text, confidence in words)
        self.languages: tuple[str, ...] = ()

    def read(self, _gray: Gray, _mode: int, _limit_s: float) -> tuple[EngineWord, ...]:
        """The given words."""
        return self.words


def chosen(engine: ScriptedEngine, wanted: tuple[str, ...], tessdata_dir: Path) -> tuple[str, ...]:
    def start(_folder: Path, codes: tuple[str, ...]) -> ScriptedEngine:
        engine.languages = codes
        return engine

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tesseract, "engine", start)
        return choose_languages(GRAY, (REGION,), wanted, tessdata_dir)


def test_named_languages_are_taken_as_they_are(tmp_path: Path) -> None:
    assert choose_languages(GRAY, (REGION,), ("tha", "eng"), tmp_path) == ("tha", "eng")


def test_with_one_script_there_is_nothing_to_tell(folder) -> None:
    engine = ScriptedEngine()
    assert chosen(engine, ("auto", "eng"), folder("eng", "por", "osd")) == ("eng", "por")
    assert engine.languages == ()


@pytest.mark.parametrize(
    ("words", "languages"),
    [
        ([("Transfer", 0.9), ("complete", 0.9)], ("eng", "por")),
        ([(THAI, 0.9)], ("tha", "eng")),
        ([("Transfer", 0.9), ("ไปยัง", 0.9)], ("tha", "eng")),
        ([("Transfer", 0.9), (THAI, 0.5)], ("eng", "por")),
        ([("Transfer to the account of another", 0.9), ("ก", 0.9)], ("eng", "por")),
        ([("1,234.50", 0.9), ("--", 0.9)], ("eng",)),
        ([("ab", 0.9)], ("eng",)),
        ([], ("eng",)),
    ],
)
def test_letters_tell_the_script(folder, words: list[tuple[str, float]], languages: tuple[str, ...]) -> None:
    """Unsure words don't count, few letters of another script are a misreading, too few letters are the usual ones."""
    engine = ScriptedEngine(*words)
    assert chosen(engine, ("auto", "eng"), folder("eng", "por", "tha")) == languages
    assert engine.languages == ("eng", "tha")


def test_languages_before_auto_are_read_in_any_case(folder) -> None:
    tessdata_dir = folder("eng", "por", "tha")
    assert chosen(ScriptedEngine(("Transfer", 0.9)), ("tha", "auto", "eng"), tessdata_dir) == ("tha", "eng", "por")
    assert chosen(ScriptedEngine(), ("tha", "auto", "por"), tessdata_dir) == ("tha", "por")


def test_without_regions_the_usual_ones_are_read(folder) -> None:
    assert choose_languages(GRAY, (), ("auto", "por"), folder("eng", "por", "tha")) == ("por",)


def test_among_many_scripts_shapes_tell_which_joins_the_probe(folder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three scripts more than the usual languages' are probed, and the one that letters look like."""

    class Finder:
        def find(self, _gray: Gray, characters: int) -> Script | None:
            return Script("Thai", 3.0) if characters < 50 else None

    monkeypatch.setattr(tesseract, "script_finder", lambda _folder: Finder())
    engine, many = ScriptedEngine((THAI, 0.9)), folder("eng", "ara", "ell", "heb", "jpn", "rus", "tha")
    assert probing_languages(("auto", "eng"), many) == ("eng", "ara", "ell", "heb")
    assert chosen(engine, ("auto", "eng"), many) == ("tha", "eng")
    assert engine.languages == ("eng", "ara", "ell", "heb", "tha")


def test_broken_data_fails_the_stage(folder) -> None:
    with pytest.raises(ReadFailed) as caught:
        choose_languages(GRAY, (REGION,), ("auto", "eng"), folder("eng", "tha"))
    assert caught.value.stage == "read"


@pytest.mark.usefixtures("either_engine")
def test_shapes_of_drawn_letters(draw, tessdata_dir: Path) -> None:
    finder = tesseract.script_finder(tessdata_dir)
    text = draw([(30, 30 + 40 * row, "The report is ready and was sent by mail") for row in range(3)])[..., 0]
    found = finder.find(text, 50)
    assert found is not None
    assert found.name == "Latin"
    assert finder.find(draw([(30, 30, "few")])[..., 0], 10) is None


def test_scripts_are_told_by_shape_only_with_data_for_it(tmp_path: Path) -> None:
    assert tesseract.script_finder(tmp_path) is None


@pytest.mark.usefixtures("either_engine")
@pytest.mark.parametrize(("slip", "first"), [("english", "eng"), ("thai", "tha")])
def test_slips_are_read_in_their_language(tessdata_dir: Path, slip: str, first: str) -> None:
    """The result names the languages it was read with."""
    if first not in languages.in_folder(tessdata_dir):
        pytest.skip(f"no {first}.traineddata among Tesseract's language data")
    request = ReadRequest(Options(detail_level="fast"), ("auto", "eng"), tessdata_dir, 1_000_000, 1, 60)
    result = read_image((SLIPS / f"{slip}.png").read_bytes(), request)
    assert result.languages is not None
    assert result.languages[0] == first
    assert "eng" in result.languages
    truth = (SLIPS / f"{slip}.txt").read_text(encoding="utf-8").split()
    assert len(set(truth) & set(result.text.split())) > 0.5 * len(set(truth))


@pytest.mark.usefixtures("either_engine")
def test_pieces_from_all_over_the_picture_are_looked_at(tessdata_dir: Path) -> None:
    """English alone above, Thai below: both are read."""
    if "tha" not in languages.in_folder(tessdata_dir):
        pytest.skip("no tha.traineddata among Tesseract's language data")
    both = np.concatenate(
        [np.asarray(Image.open(SLIPS / f"{name}.png").convert("RGB")) for name in ("english", "thai")]
    )
    gray = enhance(both, 18, EnhanceOptions()).gray
    regions = segment(gray, SegmentOptions()).regions
    started = time.process_time()
    assert choose_languages(gray, regions, ("auto", "eng"), tessdata_dir) == ("tha", "eng")
    assert time.process_time() - started < 5
