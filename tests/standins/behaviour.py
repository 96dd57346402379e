"""How a stand-in server behaves: its hardware, its models, and what it does wrong."""

from hashlib import sha256
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field

Fault = Literal[
    "error_500",  # fails before a word is said
    "error_in_stream",  # fails after some
    "no_memory",
    "busy",  # 503, though the queue is not full
    "hang",  # says nothing, ever
    "stall",  # says something, then nothing, ever
    "drip",  # one character at a time, without end
    "loop",  # the same words without end, as far as the token budget goes
    "huge",  # words without end, and without regard for the token budget
    "endless_line",  # bytes without end and without a line's end
    "prose",  # an answer that is no JSON
    "invalid_json",  # an answer that ends too early, though it says that it stopped
    "wrong_schema",
    "done_length",
    "done_load",
    "broken_off",  # the stream ends before it is done
    "reset",  # the connection ends before the stream does
    "html",  # what a proxy says
    "digest_change",  # other weights come under the same name while it answers
    "obey",  # says what the picture tells it to, in the schema's form
    "obey_too_far",  # and sets what it was not asked for
]


def digest_of(name: str) -> str:
    """A digest for a model of that name."""
    return sha256(name.encode()).hexdigest()


class Behaviour(BaseModel):
    """Changes made while the server runs count from the next request on, those to the hardware from the next load on.

    `faults` are for one request each, in order; then `fault` is for all, or at random for `failing_share` of them,
    which fail with `error_500` unless `fault` says otherwise.
    """

    model_config = ConfigDict(extra="forbid", validate_assignment=True)

    models: dict[str, str] = Field(
        default_factory=lambda: {name: digest_of(name) for name in ("qwen2.5vl:7b", "qwen2.5vl:32b")}
    )
    answer_s: float = Field(0.0, ge=0, description="Seconds of GPU time of one answer")
    pieces: int = Field(4, ge=1, description="Pieces an answer comes in")
    swap_s: float = Field(0.0, ge=0, description="Seconds it takes to load a model")
    parallel: int = Field(4, ge=1, description="Requests a loaded model answers at once")
    max_loaded: int = Field(1, ge=1, description="Models in memory at once")
    max_queue: int = Field(512, ge=0, description="Requests that may wait")
    content: str | None = Field(None, description="What every answer says, instead of what the schema asks for")
    fault: Fault | None = None
    faults: list[Fault] = []
    listings_fail: bool = Field(False, description="Whether /api/tags fails")
    failing_share: float = Field(0.0, ge=0, le=1)
    seed: int = 0
    drip_s: float = Field(0.02, gt=0, description="Seconds between two characters of a drip")

    def changed(self, changes: dict[str, object]) -> Self:
        """The same with some members changed."""
        return type(self).model_validate(self.model_dump() | changes)
