"""Which refusals an operation may answer with: their statuses and codes, from what it is."""

import re
from collections.abc import Mapping

from arachne import errors
from arachne.errors import ArachneError
from arachne.http.operations import Operation
from arachne.schemas.queries import JobQuery, PageQuery

PARAMETER = re.compile(r"{(\w+)}")
_USUAL: Mapping[int, type[ArachneError]] = {
    one.http_status: one
    for one in (
        errors.MalformedRequest,
        errors.InvalidToken,
        errors.NotFound,
        errors.Conflict,
        errors.Gone,
        errors.RequestTooLarge,
        errors.UnsupportedMediaType,
        errors.InvalidOptions,
        errors.RateLimited,
        errors.Unavailable,
    )
}


def list_refusals(path: str, operation: Operation) -> dict[int, list[str]]:
    """The codes by status, both in order. Statuses that the operation answers in another form are left out."""
    found: dict[int, set[str]] = {}
    for one in (*_derived(path, operation), *(_USUAL[status] for status in operation.errors), *operation.raises):
        found.setdefault(one.http_status, set()).add(one.code)
    return {status: sorted(found[status]) for status in sorted(found) if status not in operation.answers}


def _derived(path: str, operation: Operation) -> list[type[ArachneError]]:
    derived: list[type[ArachneError]] = []
    if operation.scope is not None:
        derived += [errors.InvalidToken, errors.InsufficientScope, errors.AccountUnknown]
        derived += [errors.RequestTooLarge, errors.Unavailable]
    if operation.policy is not None or operation.counted:
        derived.append(errors.RateLimited)
    if PARAMETER.search(path):
        derived.append(errors.NotFound)
    if operation.query is not None:
        derived.append(errors.InvalidOptions)
        if issubclass(operation.query, PageQuery | JobQuery):  # a cursor of another list
            derived.append(errors.MalformedRequest)
    if operation.body is not None:
        derived += [errors.MalformedRequest, errors.UnsupportedMediaType, errors.InvalidOptions]
    return derived
