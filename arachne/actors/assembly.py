"""Results put together: what a subprocess read, and what a model said about it later."""

from dataclasses import dataclass

from arachne.bodies import Reading, compress, decompress
from arachne.pipeline import described, is_read, undescribed
from arachne.schemas.result import Result, StageReport, Vlm

DESCRIBE, DEFERRED = "describe", "deferred"


@dataclass(frozen=True)
class Answer:
    """What came of an image: a description or the reason there is none, and how long the model had it.

    `cacheable` is whether it is certain which weights answered.
    """

    vlm: Vlm | None = None
    reason: str = ""
    ms: float = 0.0
    cacheable: bool = False


def is_deferred(result: Result) -> bool:
    """Whether a model is still to be asked about the image."""
    return any(stage.name == DESCRIBE and stage.reason == DEFERRED for stage in result.stages)


def to_reading(result: Result, *, proven: bool = True) -> Reading:
    """The result as it is handed over; `proven` is whether it is certain which weights described the image."""
    return Reading(
        body=compress(result.model_dump_json().encode()),
        model_version=result.model_version,
        degraded=result.degraded,
        pages=len(result.pages) if result.pages else 1,
        cpu_s=_seconds(result.stages, describing=False),
        gpu_s=_seconds(result.stages, describing=True),
        is_read=is_read(result.stages),
        proven=proven,
        stage_s={
            stage.name: stage.ms / 1000 for stage in result.stages if not (stage.cached or stage.status == "skipped")
        },
    )


def complete(reading: Reading, answer: Answer) -> Reading:
    """The reading with the model's answer in it; degraded where there is none. Takes milliseconds: not for a loop."""
    result = Result.model_validate_json(decompress(reading.body))
    if answer.vlm is None:
        return to_reading(undescribed(result, answer.reason, answer.ms))
    return to_reading(described(result, answer.vlm, answer.ms), proven=answer.cacheable)


def _seconds(stages: list[StageReport], *, describing: bool) -> float:
    return sum(stage.ms for stage in stages if (stage.name == DESCRIBE) == describing) / 1000
