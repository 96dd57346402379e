"""The service's refusals as the errors they were, and what else may come instead of an answer."""

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from http import HTTPStatus
from typing import TypeVar

import httpx2
from pydantic import BaseModel, ValidationError

from arachne.errors import (
    ArachneError,
    FieldError,
    ImageError,
    InvalidToken,
    MalformedRequest,
    RateLimited,
    RequestError,
    Unavailable,
    UnexpectedAnswer,
)
from arachne.retry_after import parse_retry_after
from arachne.schemas.job import ImageFault
from arachne.schemas.problem import Problem
from arachne.strict_json import parse

M = TypeVar("M", bound=BaseModel)
_SAFE_TEXT = re.compile(r"[^\x20-\x7e]+")


def _kinds(root: type[ArachneError]) -> Iterator[type[ArachneError]]:
    yield root
    for kind in root.__subclasses__():
        yield from _kinds(kind)


def _by_code(*roots: type[ArachneError]) -> dict[str, type[ArachneError]]:
    """The most general class of each code."""
    found: dict[str, type[ArachneError]] = {}
    for root in roots:
        for kind in _kinds(root):
            if "code" in vars(kind):
                found.setdefault(kind.code, kind)
    return found


_REFUSALS = _by_code(RequestError, Unavailable, ImageError)
_REFUSALS["malformed_request"] = MalformedRequest
_IMAGE_FAULTS = _by_code(ImageError, RequestError)


def read_refusal(response: httpx2.Response) -> ArachneError:
    """The error that a response of a status from 300 on stands for."""
    retry_after_s = read_retry_after(response)
    problem = _problem(response)
    if problem is None:
        return _foreign(response, retry_after_s)
    request_id = problem.request_id
    errors: list[FieldError] = [{"loc": one.loc, "msg": one.msg} for one in problem.errors or ()]
    faults = [f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in errors[:5]]
    told = "; ".join([problem.detail, *(one for one in faults if one not in problem.detail)])
    kind = _REFUSALS.get(problem.code)
    message = f"{told} (request {request_id})"
    if kind is None:
        return _unknown(problem, message, retry_after_s)
    error = kind(message)
    error.retry_after_s, error.errors = retry_after_s, tuple(errors)
    return error


def read_image_fault(fault: ImageFault) -> ArachneError:
    """Why an image failed, as the error it was in the service."""
    kind = _IMAGE_FAULTS.get(fault.code)
    if kind is not None and not issubclass(kind, ImageError):
        return kind(fault.message)
    error = (kind or ImageError)(fault.message)
    assert isinstance(error, ImageError)
    error.stage = fault.stage
    if kind is None:
        _name(error, fault.code)
    return error


def read_retry_after(response: httpx2.Response) -> float | None:
    """The seconds a `Retry-After` asks for; None where there is none."""
    given = response.headers.get("Retry-After")
    return None if given is None else parse_retry_after(given, datetime.now(UTC))


def read_model(model: type[M], response: httpx2.Response) -> M:
    """The answer's body; members that a newer service added are left out.

    Raises:
        UnexpectedAnswer: it is none of that form.
    """
    return read_json(model, response.content, str(response.url))


def read_json(model: type[M], text: bytes | str, source: str) -> M:
    """What `source` answered, as `read_model`.

    Raises:
        UnexpectedAnswer: it is none of that form.
    """
    try:
        return model.model_validate_json(text, extra="ignore")
    except ValidationError as error:
        first = error.errors()[0]
        raise UnexpectedAnswer(
            f"{source} answered in a form this client doesn't read: "
            f"{'.'.join(map(str, first['loc']))}: {first['msg']}. Check ARACHNE_URL, or update arachne-vision."
        ) from None


def read_object(response: httpx2.Response) -> dict[str, object]:
    """The answer's JSON object, empty where there is no body.

    Raises:
        UnexpectedAnswer: it is none.
    """
    if not response.content:
        return {}
    try:
        found = parse(response.content)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise UnexpectedAnswer(f"{response.url} answered with no JSON object. Check that ARACHNE_URL is the service's.")
    return found


def _problem(response: httpx2.Response) -> Problem | None:
    try:
        return Problem.model_validate_json(response.content)
    except ValidationError:
        return None


def _foreign(response: httpx2.Response, retry_after_s: float | None) -> ArachneError:
    """What a proxy before the service, or something else in its place, says."""
    status, url = response.status_code, response.url
    word = HTTPStatus(status).phrase if status in set(HTTPStatus) else "no known status"
    told = f"{url} answered {status} ({word}) and not as the service does"
    if status == 429:
        return RateLimited(f"{told}: too many requests.", retry_after_s=retry_after_s)
    if status >= 500:
        return Unavailable(
            f"{told}. It may be starting, or a proxy before it can't reach it.", retry_after_s=retry_after_s
        )
    if status == 401:
        return InvalidToken(f"{told}. Check the token and that ARACHNE_URL is the service's.")
    if 300 <= status < 400:
        place = _SAFE_TEXT.sub("?", response.headers.get("Location", "elsewhere"))
        return UnexpectedAnswer(f"{url} redirects to {place}. Set ARACHNE_URL to where the service itself is.")
    return UnexpectedAnswer(f"{told}. Check that ARACHNE_URL is the service's and nothing is between.")


def _unknown(problem: Problem, message: str, retry_after_s: float | None) -> ArachneError:
    """A refusal of a kind that is newer than this client."""
    kind = Unavailable if problem.status >= 500 else RequestError
    error = kind(message, retry_after_s=retry_after_s)
    _name(error, problem.code)
    return error


def _name(error: ArachneError, code: str) -> None:
    """Have the error bear the code it came with."""
    vars(error)["code"] = code


def read_mapping(value: object) -> Mapping[str, object]:
    """The object, empty where it is none."""
    return value if isinstance(value, dict) else {}
