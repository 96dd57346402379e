"""Request bodies: bounded while they stream, kept on disk where they are large, parsed strictly."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, closing, nullcontext
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
from arachne.spool import Spool

M = TypeVar("M")
T = TypeVar("T")
JSON = "application/json"
MAX_SMALL_BYTES = 1024 * 1024
IDLE_S = 30.0  # a body that stops for so long won't come any more
TOTAL_S = 600.0
SMALL_TOTAL_S = 60.0  # for bodies of which no large one is taken
_SMALL_JSON_BYTES = 1024 * 1024
BATCH_BYTES = 128 * 1024


def check_length(headers: Headers, max_bytes: int, *, hint: str = "") -> None:
    """Nothing, unless Content-Length tells already that the body is too large; `hint` says what to do about it.

    Raises:
        RequestTooLarge: it does.
    """
    length = headers.get("content-length", "")
    if length.isascii() and length.isdigit() and int(length) > max_bytes:
        raise _too_large(max_bytes, hint)


def bound(
    receive: Receive, max_bytes: int, *, idle_s: float = IDLE_S, total_s: float | None = None, hint: str = ""
) -> Receive:
    """`receive` that raises RequestTooLarge over `max_bytes`, and MalformedRequest where the body comes too slowly."""
    if total_s is None:
        total_s = TOTAL_S if max_bytes > MAX_SMALL_BYTES else SMALL_TOTAL_S
    seen, ends_s, over = 0, asyncio.get_running_loop().time() + total_s, False

    async def bounded() -> Message:
        nonlocal seen, over
        if over:  # what comes now says that the client is gone, and may take its time
            return await receive()
        try:
            async with asyncio.timeout(min(idle_s, ends_s - asyncio.get_running_loop().time())):
                message = await receive()
        except TimeoutError:
            raise MalformedRequest(
                f"The body came too slowly: {idle_s:g} s may pass between two parts of it, {total_s:g} s in all."
            ) from None
        if message["type"] == "http.request":
            seen += len(message.get("body", b""))
            if seen > max_bytes:
                raise _too_large(max_bytes, hint)
        over = not message.get("more_body", False)
        return message

    return bounded


def media_type(headers: Headers) -> str:
    """The body's media type without parameters, in lower case.

    Raises:
        UnsupportedMediaType: the body is compressed, which would evade every limit on its size.
    """
    if headers.get("content-encoding", "identity").strip().lower() not in {"", "identity"}:
        raise UnsupportedMediaType("Send the body as it is, without Content-Encoding.")
    return headers.get("content-type", "").split(";", 1)[0].strip().lower()


async def batches(request: Request) -> AsyncIterator[bytes]:
    """The body in pieces worth a thread's while, of `BATCH_BYTES` or more; the last one is what is left."""
    waiting = bytearray()
    async for chunk in request.stream():
        waiting += chunk
        if len(waiting) >= BATCH_BYTES:
            batch, waiting = bytes(waiting), bytearray()
            yield batch
    yield bytes(waiting)


async def read_json(
    request: Request,
    decode: Callable[[object], T],
    gate: AbstractAsyncContextManager[object] | None = None,
    body: Spool | None = None,
) -> T:
    """What `decode` makes, in a thread, of the JSON value of the body.

    A large `body` waits on disk until it may pass the `gate`; its value is gone when the gate opens again.

    Raises:
        UnsupportedMediaType: the body isn't declared as JSON, or is compressed.
        MalformedRequest: it is no JSON.
        Unavailable: there is no room for it.
    """
    declared = media_type(request.headers)
    if declared != JSON:
        raise UnsupportedMediaType(f"Send Content-Type: {JSON}, not {declared or 'none'}.")
    with closing(body or Spool()) as spool:
        async for batch in batches(request):
            if len(batch) < BATCH_BYTES:
                spool.add(batch)
            else:  # it may reach the disk, which may be slow
                await anyio.to_thread.run_sync(spool.add, batch)
        small = spool.size_bytes <= _SMALL_JSON_BYTES
        async with gate if gate is not None and not small else nullcontext():
            return await anyio.to_thread.run_sync(lambda: decode(parse_json(spool.read(0, spool.size_bytes))))


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

    def decode(value: object) -> M:
        _require_storable(value)
        return validate(model, value)

    return await read_json(request, decode)


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
        return adapter.validate_python(value)
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


def _too_large(max_bytes: int, hint: str) -> RequestTooLarge:
    return RequestTooLarge(f"The body is over {max_bytes:,} bytes. {hint or 'Send a shorter one.'}")
