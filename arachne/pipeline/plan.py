"""Which stages a request needs, and what of its options changes the result."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from arachne.schemas.options import Options
from arachne.schemas.result import STAGE_NAMES, StageName


@dataclass(frozen=True)
class ReadRequest:
    """All that reading one image depends on besides its bytes; crosses process borders.

    `languages` are the effective ones, `tessdata_dir` the merged folder of `arachne.languages.merge`.
    """

    options: Options
    languages: tuple[str, ...]
    tessdata_dir: Path
    max_pixels: int
    max_frames: int
    soft_time_limit_s: float
    vlm_configured: bool = False
    model_version: str = "none"


def needed_stages(options: Options) -> tuple[StageName, ...]:
    """The stages that run, in order: those asked for and all they build on; without `stages`, all of the level's."""
    if options.stages is None:
        return STAGE_NAMES[:-1] if options.detail_level == "fast" else STAGE_NAMES
    # Each stage works on what the one before it gives, so the last one asked for decides.
    last = max(STAGE_NAMES.index(name) for name in options.stages)
    return STAGE_NAMES[: last + 1]


def options_hash(options: Options, languages: Sequence[str]) -> str:
    """SHA-256 in hex of what changes the result: never the cache mode, never how defaults were spelled."""
    stages = needed_stages(options)
    told = {
        "detail_level": options.detail_level,
        "stages": stages,
        "languages": tuple(languages),
        "frames": options.frames,
        "profile": options.profile,
    }
    if "describe" in stages:
        told |= {"model": options.model, "prompt": options.prompt or None}
    return sha256(json.dumps(told, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
