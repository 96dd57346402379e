"""What reading one image depends on."""

from dataclasses import dataclass
from pathlib import Path

from arachne.reading import needed_stages, options_hash
from arachne.schemas.options import Options

__all__ = ["ReadRequest", "needed_stages", "options_hash"]


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
