"""The way a VLM's description takes into a result that was read without it."""

from arachne.pipeline.plan import ReadRequest
from arachne.pipeline.reports import is_degraded
from arachne.schemas.result import Result, StageReport, Vlm
from arachne.stages.decode import DecodeOptions, decode
from arachne.stages.describe import DescribeOptions, DescribeRequest, request_for


def prepare_description(data: bytes, text: str, request: ReadRequest, model: str) -> DescribeRequest:
    """What the worker's gate sends to `model` about the first frame; made for a subprocess.

    Raises:
        ImageError: the image can't be decoded.
    """
    decoded = decode(data, DecodeOptions(request.max_pixels, request.max_frames))
    return request_for(decoded.frames[0], text, DescribeOptions(model, request.options.prompt))


def described(result: Result, vlm: Vlm, ms: float) -> Result:
    """The result with its description; `ms` is how long the model took."""
    report = StageReport(name="describe", status="ok", ms=round(ms, 2), cached=False, reason=None)
    return _with_report(result, report).model_copy(update={"vlm": vlm, "model_version": vlm.model})


def undescribed(result: Result, reason: str, ms: float) -> Result:
    """The result of stages 1 to 7, degraded because the model gave nothing usable."""
    return _with_report(
        result, StageReport(name="describe", status="degraded", ms=round(ms, 2), cached=False, reason=reason[:300])
    )


def _with_report(result: Result, report: StageReport) -> Result:
    stages = [report if stage.name == report.name else stage for stage in result.stages]
    return result.model_copy(update={"stages": stages, "degraded": is_degraded(stages)})
