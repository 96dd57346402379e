"""The way a VLM's description takes into a result that was read without it."""

from arachne.pipeline.plan import ReadRequest
from arachne.pipeline.reports import is_degraded
from arachne.schemas.result import Result, StageReport, Vlm
from arachne.stages.decode import DecodeOptions, decode
from arachne.stages.describe import DescribeOptions, DescribeRequest, request_for

FIRST_PAGE_ONLY = "first_page_only"


def prepare_description(data: bytes, text: str, request: ReadRequest, model: str) -> DescribeRequest:
    """What the worker's gate sends to `model` about the first frame; made for a subprocess.

    Raises:
        ImageError: the image can't be decoded.
    """
    decoded = decode(data, DecodeOptions(request.max_pixels, request.max_frames))
    return request_for(decoded.frames[0], text, DescribeOptions(model, request.options.prompt))


def described(result: Result, vlm: Vlm, ms: float) -> Result:
    """The result with its description, which of several pages is the first one's; `ms` is how long the model took."""
    report = StageReport(name="describe", status="ok", ms=round(ms, 2), cached=False, reason=None)
    changed = _with_report(result, report).model_copy(update={"vlm": vlm, "model_version": vlm.model})
    if not changed.pages:
        return changed
    first, *others = [page.model_copy(update={"model_version": vlm.model}) for page in changed.pages]
    return changed.model_copy(update={"pages": [first.model_copy(update={"vlm": vlm}), *others]})


def undescribed(result: Result, reason: str, ms: float) -> Result:
    """The result of stages 1 to 7, degraded because the model gave nothing usable."""
    return _with_report(
        result, StageReport(name="describe", status="degraded", ms=round(ms, 2), cached=False, reason=reason[:300])
    )


def _with_report(result: Result, report: StageReport) -> Result:
    """The result with this report, which is the first page's; no model is asked about further ones."""
    stages = [report if stage.name == report.name else stage for stage in result.stages]
    pages = None
    if result.pages:
        rest = StageReport(name=report.name, status="skipped", ms=0.0, cached=False, reason=FIRST_PAGE_ONLY)
        first, *others = result.pages
        pages = [_with_report(first, report), *(_with_report(page, rest) for page in others)]
    return result.model_copy(update={"stages": stages, "degraded": is_degraded(stages), "pages": pages})
