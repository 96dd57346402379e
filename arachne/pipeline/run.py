"""An image's bytes through the stages; the eight are called one by one so that each hand-over is typed."""

import time
from dataclasses import dataclass, field

import numpy as np

from arachne.pipeline.fingerprint import pipeline_version
from arachne.pipeline.looking import Run, prepare, read_page, turn_upright
from arachne.pipeline.plan import ReadRequest, needed_stages
from arachne.pipeline.reports import Reports, is_degraded, summed
from arachne.schemas.result import Colour, Geometry, ImageInfo, Quality, Result, Visual
from arachne.stages.arrays import Rgb
from arachne.stages.assess import Assessment, AssessOptions, assess
from arachne.stages.decode import Decoded, DecodeOptions, decode
from arachne.stages.describe import skipped_reason
from arachne.stages.markup import clean
from arachne.stages.rapid import SecondReader, look
from arachne.stages.read import Reading
from arachne.stages.scan import clean_scan
from arachne.stages.structure import Structured, StructureOptions, structure
from arachne.stages.upright import Upright, level

PAGE_BREAK = "\f"
_MANY_GLYPHS = 5_000  # more marks like characters than a page of print has; a photograph has fewer
_TOO_SMALL = "text_too_small: what may be text is too small or too dense at the size pictures are read; crop the image"


@dataclass
class _Page:
    """What the stages found on one picture; None where one did not run."""

    assessment: Assessment | None = None
    upright: Upright | None = None
    reading: Reading | None = None
    languages: tuple[str, ...] = ()
    structured: Structured | None = None
    warnings: list[str] = field(default_factory=list)


def read_image(data: bytes, request: ReadRequest, second: SecondReader = look) -> Result:
    """Everything read from one image. Does no I/O but loading language data; made for a subprocess.

    `second` looks again where the first reader is unsure; the default does so in this process.

    Raises:
        ImageError: decoding or reading failed; `stage` names where.
    """
    deadline = time.monotonic() + request.soft_time_limit_s
    needed, reports = needed_stages(request.options), Reports()
    limits = DecodeOptions(request.max_pixels, request.max_frames, request.options.frames)
    decoded = reports.must("decode", lambda: decode(data, limits))
    twice = None if request.options.detail_level == "fast" else second
    first = _page_result(decoded, 0, Run(request, needed, deadline, reports, twice))
    if request.options.frames == "first":
        return first
    pages = [first]
    for index in range(1, len(decoded.frames)):
        # All frames are decoded at once; the time is on the first page's report.
        told = reports.entries["decode"].model_copy(update={"ms": 0.0})
        pages.append(_page_result(decoded, index, Run(request, needed, deadline, Reports({"decode": told}), twice)))
    return _joined(pages)


def _page_result(decoded: Decoded, index: int, run: Run) -> Result:
    rgb = decoded.frames[index]
    page = _run(rgb, run)
    assessment, turned, reading, structured = page.assessment, page.upright, page.reading, page.structured
    request, listed = run.request, run.reports.listed()
    return Result(
        image=_image(decoded, rgb, page.warnings),
        quality=_quality(assessment) if assessment else None,
        geometry=_geometry(turned) if turned else None,
        text=structured.text if structured else _plain_text(reading),
        markdown=structured.markdown if structured else None,
        languages=list(page.languages) if reading else None,
        confidence=reading.confidence if reading else None,
        blocks=list(structured.blocks) if structured else None,
        tables=list(structured.tables) if structured else None,
        codes=list(structured.codes) if structured else None,
        visual=_visual(assessment) if assessment else None,
        vlm=None,
        fields=structured.fields if structured else None,
        stages=listed,
        degraded=is_degraded(listed),
        model_version=request.model_version,
        pipeline_version=pipeline_version(request.tessdata_dir),
        pages=None,
    )


def _run(rgb: Rgb, run: Run) -> _Page:
    """Stages 2 to 8 on one picture, as far as they are needed."""
    page, reports = _Page(), run.reports
    if "assess" in run.needed:
        page.assessment, found, seen = reports.may("assess", lambda: _assess(rgb, run), lambda: (None, None, rgb))
    else:
        found, seen = None, rgb
    height_px, glyphs = (found.text_height_px, found.glyphs) if found else (None, None)
    flat = Upright(seen, 0, 0.0, np.eye(3), height_px, np.zeros((0, 5), np.int32))
    if "upright" in run.needed:
        flat = reports.may("upright", lambda: level(seen, glyphs, height_px, run.turning), lambda: flat)
        page.upright = flat
    if "read" in run.needed:
        _run_reading(page, rgb, flat, run)
    elif "upright" in run.needed:
        page.upright = turn_upright(flat, run)
        if "enhance" in run.needed:
            prepare(page.upright, run)
    if "describe" in run.needed:
        reports.skip("describe", skipped_reason(configured=run.request.vlm_configured))
    return page


def _run_reading(page: _Page, rgb: Rgb, flat: Upright, run: Run) -> None:
    """Stages 4 to 7; what they find goes into the page."""
    reports, found = run.reports, read_page(rgb, flat, run)
    page.upright, page.reading, page.languages = found.turned, found.reading, found.languages
    if not found.reading.words and len(found.turned.glyphs) > _MANY_GLYPHS and found.is_too_small:
        page.warnings.append(_TOO_SMALL)
    if found.reading.degraded:
        reports.degrade("read", found.reading.degraded)
    if "structure" in run.needed:
        words, gray = found.reading.words, found.enhanced.gray
        transform = found.enhanced.transform @ found.turned.transform
        aim = StructureOptions(profile=run.request.options.profile)
        page.structured = reports.may("structure", lambda: structure(words, gray, rgb, transform, aim), lambda: None)


def _assess(rgb: Rgb, run: Run) -> tuple[Assessment | None, Assessment | None, Rgb]:
    """What the picture is like, what the one to read is like, and that picture: a scan is cleaned."""
    found = assess(rgb, AssessOptions())
    if run.request.options.profile != "document":
        return found, found, rgb
    seen = clean_scan(rgb, found.text_height_px)
    return found, found if seen is rgb else assess(seen, AssessOptions()), seen


def _plain_text(reading: Reading | None) -> str | None:
    """The words by line, where no structure was made of them."""
    if reading is None:
        return None
    lines = dict[tuple[int, int], list[str]]()
    for word in reading.words:
        lines.setdefault((word.region, word.line), []).append(clean(word.text))
    return "\n".join(" ".join(words) for words in lines.values())


def _joined(pages: list[Result]) -> Result:
    """The first page's result with all pages' text, the worst of their stages, and the pages themselves."""
    first = pages[0]
    texts, markdowns = [page.text for page in pages], [page.markdown for page in pages]
    languages = dict.fromkeys(code for page in pages for code in page.languages or ())
    confidences = [page.confidence for page in pages if page.confidence is not None]
    return first.model_copy(
        update={
            "text": None if first.text is None else PAGE_BREAK.join(text or "" for text in texts),
            "markdown": None if first.markdown is None else PAGE_BREAK.join(text or "" for text in markdowns),
            "languages": None if first.languages is None else list(languages),
            "confidence": round(sum(confidences) / len(confidences), 4) if confidences else None,
            "stages": summed([page.stages for page in pages]),
            "degraded": any(page.degraded for page in pages),
            "pages": pages,
        }
    )


def _image(decoded: Decoded, rgb: Rgb, warnings: list[str]) -> ImageInfo:
    return ImageInfo(
        sha256=decoded.sha256,
        format=decoded.format,
        width=rgb.shape[1],
        height=rgb.shape[0],
        frames=decoded.frame_count,
        exif_orientation=decoded.exif_orientation,
        warnings=[*decoded.warnings, *warnings],
    )


def _quality(found: Assessment) -> Quality:
    return Quality(
        sharpness=found.sharpness,
        contrast=found.contrast,
        noise=found.noise,
        brightness=found.brightness,
        polarity=found.polarity,
        text_height_px=found.text_height_px,
    )


def _visual(found: Assessment) -> Visual:
    return Visual(
        phash=found.phash,
        palette=[Colour(rgb=rgb, share=share) for rgb, share in found.palette],
        edge_density=found.edge_density,
    )


def _geometry(found: Upright) -> Geometry:
    transform = [round(float(value), 6) for value in found.transform.ravel()]
    return Geometry(rotation_deg=found.rotation_deg, skew_deg=found.skew_deg, transform=transform)
