"""Servers that speak OpenAI's chat completions: vLLM, llama.cpp, LM Studio and others.

No such server tells a digest of its weights. A version is therefore a hash of what it does tell of a model, and proof
only where ARACHNE_VLM_REVISION names the weights, or where `created` tells when they came: not where it is the time of
asking (vLLM, llama.cpp), or a proxy's placeholder. Without proof descriptions aren't cached, readings still are.
"""

import json
import time
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import suppress
from email.utils import parsedate_to_datetime
from hashlib import sha256
from typing import Final

import httpx
from pydantic import BaseModel, JsonValue, ValidationError

from arachne.settings import Settings
from arachne.stages.describe import DescribeRequest
from arachne.vlm.answer import Answer, Said
from arachne.vlm.faults import refusal, translated, wrong_protocol
from arachne.vlm.models import ModelState
from arachne.vlm.transport import bounded_transport, timeouts

_IDENTIFYING: Final = ("id", "root", "parent", "owned_by", "max_model_len", "meta")
_JUST_NOW_S: Final = 60.0
_PLACEHOLDERS: Final = frozenset({0, 1677610602})  # the latter is LiteLLM's, for every model
_TOLD_BYTES: Final = 8192


class _Delta(BaseModel):
    content: str | None = None


class _Choice(BaseModel):
    delta: _Delta = _Delta()
    message: _Delta | None = None
    finish_reason: str | None = None


class _Chunk(BaseModel):
    choices: list[_Choice] = []
    error: JsonValue = None


class _Listing(BaseModel):
    data: list[dict[str, JsonValue]]


class OpenAiServer:
    """A server under `/v1`, asked without a client library: two routes need none."""

    def __init__(self, settings: Settings) -> None:
        key = settings.vlm_api_key
        self._client = httpx.AsyncClient(
            base_url=str(settings.vlm_url).rstrip("/").removesuffix("/v1") + "/v1/",
            timeout=timeouts(settings.vlm_timeout_s),
            transport=bounded_transport(),
            headers={"Authorization": f"Bearer {key.get_secret_value()}"} if key else {},
            follow_redirects=False,
            trust_env=False,
        )
        self._revision = settings.vlm_revision

    async def ask(self, request: DescribeRequest) -> Said:
        """What the model says, read piece by piece so that a bad answer ends as soon as it shows.

        Raises:
            VlmError: the server doesn't answer, or not as it should.
        """
        answer, reason = Answer(), None
        with translated():
            async with self._client.stream("POST", "chat/completions", json=_question(request)) as response:
                await _check(response, request.model)
                async for chunk in _chunks(response):
                    if chunk.error is not None:
                        raise refusal(_code(chunk.error), json.dumps(chunk.error), request.model)
                    for choice in chunk.choices[:1]:
                        answer.add((choice.message or choice.delta).content or "")
                        reason = choice.finish_reason or reason
        if reason is None:
            raise wrong_protocol()  # the stream ended before the model was done
        return Said(answer.content, reason)

    async def models(self, *, loaded: bool) -> tuple[ModelState, ...]:
        """Every model the server lists; most servers list only what they have loaded, but don't say so.

        Raises:
            VlmError: the server doesn't tell.
        """
        del loaded  # it is told in the same answer, or not at all
        with translated():
            response = await self._client.get("models")
            await _check(response, "any")
        try:
            listing = _Listing.model_validate_json(response.content)
        except ValidationError:
            raise wrong_protocol() from None
        asked_at = _asked_at(response)
        return tuple(_state(entry, asked_at, self._revision) for entry in listing.data if "id" in entry)

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()


def _question(request: DescribeRequest) -> dict[str, object]:
    picture = f"data:image/png;base64,{b64encode(request.png).decode()}"  # servers that fetch URLs would fetch any
    return {
        "model": request.model,
        "messages": [
            {"role": "system", "content": request.instruction},
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": request.question},
                    {"type": "image_url", "image_url": {"url": picture}},
                ],
            },
        ],
        "stream": True,
        "max_tokens": request.max_tokens,
        "temperature": 0,
        "seed": 0,
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "description", "strict": True, "schema": request.schema},
        },
    }


async def _check(response: httpx.Response, model: str) -> None:
    """Raise VlmError unless the status is 200."""
    if response.status_code == 200:
        return
    told = b""
    async for piece in response.aiter_bytes():
        told += piece
        if len(told) > _TOLD_BYTES:
            break
    raise refusal(response.status_code, told[:_TOLD_BYTES].decode(errors="replace"), model, _retry_after_s(response))


async def _chunks(response: httpx.Response) -> AsyncIterator[_Chunk]:
    """The events of a stream, or the one answer of a server that does not stream."""
    try:
        if response.headers.get("Content-Type", "").startswith("application/json"):
            yield _Chunk.model_validate_json(await response.aread())
            return
        async for line in response.aiter_lines():
            name, _, data = line.partition(":")
            data = data.strip()
            if data == "[DONE]":
                return
            if name == "data":
                yield _Chunk.model_validate_json(data)
            elif name == "error":  # llama.cpp's before it sent them as data
                yield _Chunk(error=data)
    except ValidationError:
        raise wrong_protocol() from None


def _code(error: JsonValue) -> int:
    code = error.get("code") if isinstance(error, dict) else None
    return code if isinstance(code, int) and 400 <= code < 600 else 500


def _retry_after_s(response: httpx.Response) -> float | None:
    told = response.headers.get("Retry-After", "")
    return float(told) if told.isascii() and told.isdigit() and len(told) < 6 else None


def _asked_at(response: httpx.Response) -> float:
    """The server's clock when it answered."""
    with suppress(ValueError, TypeError):
        return (
            parsedate_to_datetime(response.headers["Date"]).timestamp() if "Date" in response.headers else time.time()
        )
    return time.time()


def _state(entry: dict[str, JsonValue], asked_at: float, revision: str | None) -> ModelState:
    told = {name: entry[name] for name in _IDENTIFYING if name in entry} | {"revision": revision}
    created = entry.get("created")
    dated = isinstance(created, int) and created not in _PLACEHOLDERS and abs(asked_at - created) > _JUST_NOW_S
    if dated:
        told["created"] = created
    status, meta = entry.get("status"), entry.get("meta")
    size = meta.get("size") if isinstance(meta, dict) else None
    digest = sha256(json.dumps(told, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
    return ModelState(
        name=str(entry["id"]),
        version=f"{entry['id']}@{digest[:12]}",
        proven=dated or revision is not None,
        loaded=status.get("value") == "loaded" if isinstance(status, dict) else None,
        size_bytes=size if isinstance(size, int) else None,
    )
