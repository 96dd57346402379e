"""How images are to be read, as keyword arguments of a call."""

from collections.abc import Mapping, Sequence
from typing import Literal, TypedDict, TypeVar

from pydantic import BaseModel, ValidationError

from arachne.errors import InvalidOptions
from arachne.schemas.options import CacheMode, DetailLevel, Options, Profile
from arachne.schemas.result import StageName
from arachne.schemas.submission import SubmissionTerms, WebhookInput

M = TypeVar("M", bound=BaseModel)


class Terms(TypedDict, total=False):
    """Options of a submission; what is left out is as the service has it by default.

    `webhook` is a URL, or a `WebhookInput` with the events wanted. `key` is the run's name: sent again under the same
    one within a day, the same images in the same order give the same jobs. `total=False`: all may be left out.
    """

    detail_level: DetailLevel
    stages: Sequence[StageName] | None
    model: str
    languages: Sequence[str] | None
    prompt: str | None
    frames: Literal["first", "all"]
    cache: CacheMode
    profile: Profile
    metadata: Mapping[str, str]
    webhook: str | WebhookInput | None
    key: str | None


def write_terms(terms: Terms) -> dict[str, object]:
    """The terms as members of a request.

    Raises:
        InvalidOptions: an option is unknown or its value can't be.
    """
    given: dict[str, object] = dict(terms)
    given.pop("key", None)
    webhook, metadata = given.pop("webhook", None), given.pop("metadata", None)
    told: dict[str, object] = {"options": _options(given)}
    if webhook is not None:
        wanted = {"url": webhook} if isinstance(webhook, str) else webhook
        told["webhook"] = _validate(WebhookInput, wanted).model_dump(mode="json", exclude_none=True)
    if metadata:
        told["metadata"] = _validate(SubmissionTerms, {"metadata": metadata}).metadata
    return told


def _options(given: Mapping[str, object]) -> dict[str, object]:
    """Only those that were given: a newer service may have other defaults."""
    lists = {name: list(value) if isinstance(value, tuple) else value for name, value in given.items()}
    return _validate(Options, lists).model_dump(mode="json", exclude_unset=True, exclude_none=True)


def _validate(model: type[M], given: object) -> M:
    try:
        return model.model_validate(given)
    except ValidationError as error:
        told = "; ".join(f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors())
        raise InvalidOptions(told) from None
