"""Which script each of Tesseract's languages is written in, and the languages that read a script."""

from collections.abc import Sequence
from typing import Final

_CODES: Final = {
    "Latin": "afr aze bos bre cat ceb ces cos cym dan deu eng enm epo est eus fao fil fin fra frm fry gla gle glg hat "
    "hrv hun ind isl ita ita_old jav kmr lat lav lit ltz mlt mri msa nld nor oci pol por que ron slk slv spa spa_old "
    "sqi srp_latn sun swa swe tgl ton tur uzb vie yor",
    "Cyrillic": "aze_cyrl bel bul kaz kir mkd mon rus srp tat tgk ukr uzb_cyrl",
    "Greek": "ell grc",
    "Arabic": "ara fas kur pus snd uig urd",
    "Hebrew": "heb yid",
    "Devanagari": "hin mar nep san",
    "Thai": "tha",
    "Han": "chi_sim chi_tra",
    "Japanese": "jpn",
    "Korean": "kor",
    "Fraktur": "frk deu_latf",
    "Bengali": "ben asm",
    "Tamil": "tam",
    "Telugu": "tel",
    "Kannada": "kan",
    "Malayalam": "mal",
    "Gujarati": "guj",
    "Gurmukhi": "pan",
    "Oriya": "ori",
    "Sinhala": "sin",
    "Georgian": "kat kat_old",
    "Armenian": "hye",
    "Ethiopic": "amh tir",
    "Khmer": "khm",
    "Lao": "lao",
    "Myanmar": "mya",
    "Tibetan": "bod dzo",
    "Cherokee": "chr",
    "Canadian_Aboriginal": "iku",
    "Syriac": "syr",
    "Thaana": "div",
}
_OTHER_NAMES: Final = {"Hangul": "Korean", "Hiragana": "Japanese", "Katakana": "Japanese", "HanS": "Han", "HanT": "Han"}
_SCRIPTS: Final = {code: script for script, codes in _CODES.items() for code in codes.split()}
_LETTERS: Final = {
    "Han": ("CJK",),
    "Japanese": ("HIRAGANA", "KATAKANA", "CJK"),
    "Korean": ("HANGUL",),
    "Fraktur": ("LATIN",),
    "Canadian_Aboriginal": ("CANADIAN",),
}
LATIN = "Latin"
ENGLISH = "eng"
_MOST = 5  # languages read at once: each more takes as long again, and muddles the others


def script_of(code: str) -> str | None:
    """The script's name as Tesseract tells it, such as Thai; None for data that is no language's own."""
    return _SCRIPTS.get(code)


def letters_of(script: str) -> tuple[str, ...]:
    """What the Unicode names of the script's letters begin with, such as THAI."""
    return _LETTERS.get(script, (script.upper(),))


def readers_of(script: str, preferred: Sequence[str], available: Sequence[str]) -> tuple[str, ...]:
    """The available languages of a script, preferred ones first, and English with all of them; none where none is."""
    script = _OTHER_NAMES.get(script, script)
    known = [code for code in (*preferred, *available) if code in available and script_of(code) == script]
    if not known:
        return ()
    english = [ENGLISH] if ENGLISH in available else []
    named = [*english, *known] if script == LATIN else [*known[: _MOST - 1], *english]
    return tuple(dict.fromkeys(named))[:_MOST]


def one_each(codes: Sequence[str], available: Sequence[str], most: int) -> tuple[str, ...]:
    """The codes, and one more language for each of at most `most` scripts that none of them is written in."""
    chosen, scripts = list(codes), {script_of(code) for code in codes}
    for code in available:
        script = script_of(code)
        if script is not None and script not in scripts and len(chosen) < len(codes) + most:
            chosen.append(code)
            scripts.add(script)
    return tuple(chosen)
