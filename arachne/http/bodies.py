"""Request bodies: bounded while they stream, kept on disk where they are large, parsed strictly."""

from contextlib import AbstractAsyncContextManager, nullcontext
from tempfile import SpooledTemporaryFile
from typing import TypeVar

import anyio.to_thread
from pydantic import TypeAdapter, ValidationError
from starlette.datastructures import Headers, QueryParams
from starlette.requests import Request
from starlette.types import Message, Receive

from arachne import strict_json
from arachne.errors import (
    ArachneError,
    FieldError,
    InvalidOptions,
    MalformedRequest,
    RequestTooLarge,
    UnsupportedMediaType,
)
from arachne.schemas.text import is_storable

M = TypeVar("M")
JSON = "application/json"
MAX_SMALL_BYTES = 1024 * 1024
_SPOOL_BYTES = 1024 * 1024


def check_length(headers: Headers, max_bytes: int) -> None:
    """Nothing, unless Content-Length tells already that the body is too large.

    Raises:
        RequestTooLarge: it does.
    """
    length = headers.get("content-length", "")
    if length.isascii() and length.isdigit() and int(length) > max_bytes:
        raise _too_large(max_bytes)


def bound(receive: Receive, max_bytes: int) -> Receive:
    """`receive` that raises RequestTooLarge once more than `max_bytes` of the body have come."""
    seen = 0

    async def bounded() -> Message:
        nonlocal seen
        message = await receive()
        if message["type"] == "http.request":
            seen += len(message.get("body", b""))
            if seen > max_bytes:
                raise _too_large(max_bytes)
        return message

    return bounded


def media_type(headers: Headers) -> str:
    """The body's media type without parameters, in lower case."""
    return headers.get("content-type", "").split(";", 1)[0].strip().lower()


async def read_json(request: Request, gate: AbstractAsyncContextManager[object] | None = None) -> object:
    """The JSON value of the body. With a `gate`, the body waits on disk until it may be parsed.

    Raises:
        UnsupportedMediaType: the body isn't declared as JSON.
        MalformedRequest: it is no JSON.
    """
    declared = media_type(request.headers)
    if declared != JSON:
        raise UnsupportedMediaType(f"Send Content-Type: {JSON}, not {declared or 'none'}.")
    with SpooledTemporaryFile[bytes](max_size=_SPOOL_BYTES) as file:
        async for chunk in request.stream():
            file.write(chunk)
        size_bytes = file.tell()
        file.seek(0)
        if size_bytes <= _SPOOL_BYTES:
            return parse_json(file.read())
        async with gate or nullcontext():
            return await anyio.to_thread.run_sync(lambda: parse_json(file.read()))


def parse_json(data: bytes | str, where: str = "The body") -> object:
    """The JSON value of `data`.

    Raises:
        MalformedRequest: it is no JSON.
    """
    if not data.strip():
        raise MalformedRequest(f"{where} is empty; a JSON object is needed.")
    try:
        return strict_json.parse(data)
    except ValueError as error:
        raise MalformedRequest(f"{where} can't be read: {error}.") from None


async def read_model(request: Request, model: type[M]) -> M:
    """The body as `model`; an empty body is an empty object, so that defaults hold.

    Raises:
        MalformedRequest: no JSON object.
        InvalidOptions: it breaks the model's rules; says where.
    """
    if request.headers.get("content-length", "") in {"", "0"} and "transfer-encoding" not in request.headers:
        return validate(model, {})
    value = await read_json(request)
    _require_storable(value)
    return validate(model, value)


def validate(model: type[M] | TypeAdapter[M], value: object, *, error: type[ArachneError] = InvalidOptions) -> M:
    """`value` as `model`.

    Raises:
        MalformedRequest: `value` is no JSON object.
        InvalidOptions: it breaks the model's rules; says where.
    """
    if not isinstance(value, dict):
        raise MalformedRequest("A JSON object is needed, not a list, text, number or null.")
    adapter = model if isinstance(model, TypeAdapter) else TypeAdapter(model)
    try:
        return adapter.validate_python(value, strict=False)
    except ValidationError as fault:
        errors = to_field_errors(fault)
        where = ".".join(map(str, errors[0]["loc"])) or "the request"
        raise error(f"Not acceptable: {where}: {errors[0]['msg']}.", errors=errors) from None


def read_query(query: QueryParams, model: type[M]) -> M:
    """The query parameters as `model`.

    Raises:
        InvalidOptions: a parameter is unknown, given twice or breaks a rule.
    """
    names = [name for name, _ in query.multi_items()]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InvalidOptions(f"The query parameter {twice!r} is given twice.", errors=[_field_error(twice)])
    _require_storable(dict(query))
    return validate(model, dict(query))


def to_field_errors(fault: ValidationError) -> list[FieldError]:
    """Pydantic's findings in the wire's form, without the values."""
    return [
        {"loc": list(one["loc"]), "msg": one["msg"].removeprefix("Value error, ")}
        for one in fault.errors(include_url=False, include_input=False, include_context=False)
    ]


def _require_storable(value: object) -> None:
    """Nothing, where every text in `value` can be stored; it is as deep as the JSON parser lets through."""
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, dict):
            waiting += [*one.keys(), *one.values()]
        elif isinstance(one, list):
            waiting += one
        elif isinstance(one, str) and not is_storable(one):
            raise InvalidOptions("A text has a NUL character or half a surrogate pair. Leave it out.")


def _field_error(name: str) -> FieldError:
    return {"loc": [name], "msg": "given twice"}


def _too_large(max_bytes: int) -> RequestTooLarge:
    return RequestTooLarge(f"The body is over {max_bytes:,} bytes. Send fewer images in one request.")
