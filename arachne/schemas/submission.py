"""What a submission may say, in JSON or in the parts of a form."""

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, JsonValue, WithJsonSchema, model_validator

from arachne.schemas.options import Options
from arachne.schemas.text import Text, is_storable
from arachne.schemas.webhook import EventFilters
from arachne.schemas.wire import WireModel

MAX_NAME = 255
Name = Annotated[Text, Field(max_length=MAX_NAME)]
MetadataKey = Annotated[Text, Field(min_length=1, max_length=40)]
MetadataValue = Annotated[Text, Field(max_length=500)]
Metadata = Annotated[dict[MetadataKey, MetadataValue], Field(max_length=20)]


def _storable_options(options: Options) -> Options:
    for name, text in (("prompt", options.prompt), ("model", options.model)):
        if text is not None and not is_storable(text):
            raise ValueError(f"{name} has a NUL character or half a surrogate pair")
    return options


class ImageInput(WireModel):
    """One image in JSON: exactly one of `url` and `base64`. A URL that can't be one is that image's fault alone."""

    url: Annotated[str, WithJsonSchema({"type": "string", "format": "uri", "maxLength": 2048})] | None = None
    base64: str | None = None
    name: Name | None = None

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        if (self.url is None) == (self.base64 is None):
            raise ValueError("give exactly one of url and base64")
        return self


class WebhookInput(WireModel):
    """Where this job's own events go; `events` None means the default ones."""

    url: Annotated[Text, Field(min_length=1, max_length=4096)]
    events: EventFilters | None = None


class SubmissionTerms(WireModel):
    """How the images are to be read, and what goes with the job."""

    options: Annotated[Options, AfterValidator(_storable_options)] = Options()
    webhook: WebhookInput | None = None
    metadata: Metadata = Field(default={})


class _RawTerms(WireModel):
    """The terms not yet looked at: whether the images are images comes first in the order of refusal."""

    options: JsonValue = Field(default_factory=dict)
    webhook: JsonValue = None
    metadata: JsonValue = Field(default_factory=dict)

    @property
    def terms(self) -> dict[str, object]:
        """The terms as they came."""
        return {"options": self.options, "webhook": self.webhook, "metadata": self.metadata}


RetryKind = Literal["failed", "cancelled", "degraded"]


class RetryRequest(WireModel):
    """Which images of a job are to be tried again."""

    include: Annotated[list[RetryKind], Field(min_length=1, max_length=10)] = Field(default=["failed", "cancelled"])


class RawSingle(_RawTerms):
    """A single submission, its terms not yet validated."""

    image: ImageInput


class RawBatch(_RawTerms):
    """A batch, its terms not yet validated."""

    images: Annotated[list[ImageInput], Field(min_length=1)]


class SingleSubmission(SubmissionTerms):
    """One image, as JSON."""

    image: ImageInput


class BatchSubmission(SubmissionTerms):
    """Several images, as JSON; their order is kept."""

    images: Annotated[list[ImageInput], Field(min_length=1)]
