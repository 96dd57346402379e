"""How each stage went: status, milliseconds and reason; failing stages degrade where they can."""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from arachne.errors import ImageError, OutOfMemory
from arachne.schemas.result import STAGE_NAMES, StageName, StageReport, StageStatus

_log = logging.getLogger(__name__)
_Output = TypeVar("_Output")
_WORST: tuple[StageStatus, ...] = ("skipped", "ok", "degraded", "failed")

NOT_REQUESTED = "not_requested"


@dataclass
class Reports:
    """Collects the reports of one picture's run."""

    entries: dict[StageName, StageReport] = field(default_factory=dict)

    def must(self, name: StageName, call: Callable[[], _Output]) -> _Output:
        """The stage's output; its failure is the image's failure.

        Raises:
            ImageError: what the stage raised, with its name; OutOfMemory for a MemoryError.
        """
        started = time.perf_counter()
        try:
            output = call()
        except ImageError as error:
            raise type(error)(error.message, stage=error.stage or name) from error
        except MemoryError as error:
            raise _out_of_memory(name) from error
        self._note(name, "ok", started, None)
        return output

    def may(self, name: StageName, call: Callable[[], _Output], fallback: Callable[[], _Output]) -> _Output:
        """The stage's output, or the fallback where it fails, which is reported.

        Raises:
            ImageError: what the stage raised on purpose; OutOfMemory for a MemoryError, since more work meets the next.
        """
        started = time.perf_counter()
        try:
            output = call()
        except ImageError as error:
            raise type(error)(error.message, stage=error.stage or name) from error
        except MemoryError as error:
            raise _out_of_memory(name) from error
        except Exception as error:  # whatever a stage trips over, the image keeps what the others find
            _log.warning("Stage %s failed and was left out", name, exc_info=True)
            self._note(name, "failed", started, f"{type(error).__name__}: {error}"[:300])
            return fallback()
        self._note(name, "ok", started, None)
        return output

    def skip(self, name: StageName, reason: str) -> None:
        """Report that the stage did not run and why."""
        self.entries[name] = StageReport(name=name, status="skipped", ms=0.0, cached=False, reason=reason)

    def degrade(self, name: StageName, reason: str) -> None:
        """Report that the stage ran but gave less than it could."""
        self.entries[name] = self.entries[name].model_copy(update={"status": "degraded", "reason": reason})

    def listed(self) -> list[StageReport]:
        """All eight in order; those never mentioned were not requested."""
        for name in STAGE_NAMES:
            if name not in self.entries:
                self.skip(name, NOT_REQUESTED)
        return [self.entries[name] for name in STAGE_NAMES]

    def _note(self, name: StageName, status: StageStatus, started: float, reason: str | None) -> None:
        """Report a run; a stage may run again on the picture seen otherwise, and its worst run counts."""
        report = StageReport(
            name=name, status=status, ms=round((time.perf_counter() - started) * 1000, 2), cached=False, reason=reason
        )
        self.entries[name] = summed([[self.entries[name]], [report]])[0] if name in self.entries else report


def is_degraded(reports: list[StageReport]) -> bool:
    """Whether any stage gave less than it should."""
    return any(report.status in {"degraded", "failed"} for report in reports)


def is_read(reports: list[StageReport]) -> bool:
    """Whether the stages before the description gave all they should, so that other descriptions can build on them."""
    return not is_degraded([report for report in reports if report.name != "describe"])


def summed(pages: list[list[StageReport]]) -> list[StageReport]:
    """One report a stage over all pages: times added, the worst status and its reason."""
    total = []
    for reports in zip(*pages, strict=True):
        worst = max(reports, key=lambda report: _WORST.index(report.status))
        total.append(worst.model_copy(update={"ms": round(sum(report.ms for report in reports), 2)}))
    return total


def _out_of_memory(name: StageName) -> OutOfMemory:
    return OutOfMemory("The image needs more memory than a stage may take. Scale it down or split it.", stage=name)
