"""The script a picture is written in, and the languages to read it with where that was left open."""

import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from arachne.errors import ReadFailed
from arachne.languages import AUTO, in_folder, split
from arachne.stages import tesseract
from arachne.stages.arrays import Box, Gray
from arachne.stages.engine import EngineWord
from arachne.stages.segment import Region
from arachne.writing import LATIN, letters_of, one_each, readers_of, script_of

_PROBED_SCRIPTS = 3  # besides the usual languages'; each more takes as long again
_PIECES = 30
_PIECE_WIDTH_PX, _MARGIN_PX = 400, 6
_BLOCK = 6  # of Tesseract's page segmentation modes
_LIMIT_S = 5.0
_SURE = 0.75
_LEAST_LETTERS, _LEAST_SHARE = 3, 0.2  # of another script beside Latin, which is read with it anyway
_CHARACTERS = (50, 10)  # that Tesseract looks at to tell the script by their shapes


def choose_languages(
    gray: Gray, regions: Sequence[Region], wanted: Sequence[str], tessdata_dir: Path
) -> tuple[str, ...]:
    """The wanted languages for uint8 (H, W), dark on light; `auto` among them replaced by those of its script.

    Raises:
        ReadFailed: Tesseract can't be started.
    """
    if AUTO not in wanted:
        return tuple(wanted)
    always, otherwise = split(wanted)
    try:
        script = detect_script(gray, regions, wanted, tessdata_dir)
    except RuntimeError as error:
        raise ReadFailed(f"Tesseract can't tell the script: {error}. Run `arachne doctor`.", stage="read") from error
    found = readers_of(script, otherwise, in_folder(tessdata_dir)) if script else ()
    return tuple(dict.fromkeys((*always, *(found or otherwise))))


def detect_script(gray: Gray, regions: Sequence[Region], wanted: Sequence[str], tessdata_dir: Path) -> str | None:
    """The script of the text in uint8 (H, W), named as Tesseract does; None where there is too little to tell.

    Pieces of text from all over the picture are read in one language for each script, and the letters counted. Shapes
    alone don't tell: capitals are taken for Cyrillic ones, and Thai without loops for Latin.
    """
    available = in_folder(tessdata_dir)
    scripts = {script_of(code) for code in available} - {None}
    if len(scripts) < 2:
        return next(iter(scripts), None)
    pieces = _pieces(gray, regions)
    if pieces is None:
        return None
    probing = probing_languages(wanted, tessdata_dir)
    if len(scripts - {script_of(code) for code in probing}):
        probing = (*probing, *_by_shape(pieces, probing, tessdata_dir))
    words = tesseract.engine(tessdata_dir, probing).read(pieces, _BLOCK, _LIMIT_S)
    return _commonest(words, [script for code in probing if (script := script_of(code))])


def probing_languages(wanted: Sequence[str], tessdata_dir: Path) -> tuple[str, ...]:
    """Languages that read something of a picture, such as which way up it is, before its script is known."""
    if AUTO not in wanted:
        return tuple(wanted)
    usual = tuple(dict.fromkeys(code for part in split(wanted) for code in part))
    return one_each(usual, in_folder(tessdata_dir), _PROBED_SCRIPTS)


def _commonest(words: Sequence[EngineWord], scripts: Sequence[str]) -> str | None:
    letters = Counter(_names(words))
    if not letters.total():
        return None
    counts = {script: sum(letters[name] for name in letters_of(script)) for script in scripts}
    enough = max(_LEAST_LETTERS, _LEAST_SHARE * letters.total())
    others = [script for script in scripts if script != LATIN and counts[script] >= enough]
    if others:
        return max(others, key=lambda script: counts[script])
    return LATIN if counts.get(LATIN, 0) >= enough else None


def _names(words: Sequence[EngineWord]) -> Iterator[str]:
    """The first word of each letter's name in Unicode, such as THAI."""
    for word in words:
        for letter in word.text if word.confidence >= _SURE else "":
            if unicodedata.category(letter)[0] in "LM":
                yield unicodedata.name(letter, "").split(" ")[0]


def _by_shape(pieces: Gray, known: Sequence[str], tessdata_dir: Path) -> tuple[str, ...]:
    """A language of the script that the letters' shapes tell, where none is known yet."""
    finder = tesseract.script_finder(tessdata_dir)
    for characters in _CHARACTERS if finder else ():
        found = finder.find(pieces, characters) if finder else None
        if found:
            return tuple(code for code in readers_of(found.name, (), in_folder(tessdata_dir)) if code not in known)[:1]
    return ()


def _pieces(gray: Gray, regions: Sequence[Region]) -> Gray | None:
    """Up to 30 pieces of text, evenly picked and put one below the other; None without any."""
    chunks = [chunk for region in regions for chunk in region.chunks if chunk.width > chunk.height]
    chunks = chunks[:: -(-len(chunks) // _PIECES) or 1]
    cuts = [cut for chunk in chunks if (cut := _cut(gray, chunk.grown(_MARGIN_PX))).size]
    if not cuts:
        return None
    canvas = np.full((sum(len(cut) for cut in cuts), max(cut.shape[1] for cut in cuts)), 255, np.uint8)
    top = 0
    for cut in cuts:
        canvas[top : top + len(cut), : cut.shape[1]] = cut
        top += len(cut)
    return canvas


def _cut(gray: Gray, box: Box) -> Gray:
    x, y = max(0, int(box.x)), max(0, int(box.y))
    return gray[y : int(box.bottom), x : min(int(box.right), x + _PIECE_WIDTH_PX)]
