"""The version of everything that turns an image's bytes into its result."""

import json
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from arachne.schemas.result import StageName
from arachne.stages import assess, decode, describe, enhance, rapid, read, segment, structure, tesseract, upright


class Stage(NamedTuple):
    """A stage and the version of its code."""

    name: StageName
    version: int


STAGES: tuple[Stage, ...] = (
    Stage("decode", decode.VERSION),
    Stage("assess", assess.VERSION),
    Stage("upright", upright.VERSION),
    Stage("enhance", enhance.VERSION),
    Stage("segment", segment.VERSION),
    Stage("read", read.VERSION),
    Stage("structure", structure.VERSION),
    Stage("describe", describe.VERSION),
)


def pipeline_version(tessdata_dir: Path) -> str:
    """16 hex digits that change with any stage, reader or language data."""
    readers = {"tesseract": tesseract.version(), "second": rapid.installed_version()}
    told = {"stages": STAGES, "readers": readers, "data": _data_digest(tessdata_dir)}
    return sha256(json.dumps(told).encode()).hexdigest()[:16]


def _data_digest(tessdata_dir: Path) -> str:
    files = sorted(tessdata_dir.glob("*.traineddata"))
    digests = [f"{path.name} {_file_digest(path, path.stat().st_size, path.stat().st_mtime_ns)}" for path in files]
    return sha256("\n".join(digests).encode()).hexdigest()


@lru_cache(maxsize=256)
def _file_digest(path: Path, _size_bytes: int, _changed_ns: int) -> str:
    """The file's SHA-256; size and time are there to notice that it changed."""
    with path.open("rb") as file:
        digest = sha256()
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()
