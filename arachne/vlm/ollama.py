"""Ollama: `/api/chat` with pictures and a schema; digests from `/api/tags`."""

import json
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, contextmanager
from typing import cast

import ollama
from pydantic import ValidationError

from arachne.settings import Settings
from arachne.stages.describe import DescribeRequest
from arachne.vlm.answer import Answer, Said
from arachne.vlm.faults import refusal, translated, wrong_protocol
from arachne.vlm.models import ModelState
from arachne.vlm.transport import bounded_transport, timeouts


class OllamaServer:
    """Ollama, asked through its own client."""

    mend = "Run `ollama pull` with its name on that server, or choose another."

    def __init__(self, settings: Settings) -> None:
        key = settings.vlm_api_key
        self._client = ollama.AsyncClient(
            settings.vlm_url,
            timeout=timeouts(settings.vlm_timeout_s),
            transport=bounded_transport(),
            headers={"Authorization": f"Bearer {key.get_secret_value()}"} if key else {},
            follow_redirects=False,
            trust_env=False,
        )
        self._keep_alive_s = settings.vlm_keep_alive_s
        self._context_tokens = settings.vlm_context_tokens

    async def ask(self, request: DescribeRequest) -> Said:
        """What the model says, read piece by piece so that a bad answer ends as soon as it shows.

        Raises:
            VlmError: the server doesn't answer, or not as it should.
        """
        answer = Answer()
        with _translated(request.model):
            stream = await self._client.chat(
                model=request.model,
                messages=[
                    {"role": "system", "content": request.instruction},
                    {"role": "user", "content": request.question, "images": [request.png]},
                ],
                stream=True,
                think=False,
                format=request.schema,
                # The context must be the same every time: another one makes Ollama load the model anew.
                options={
                    "num_predict": request.max_tokens,
                    "num_ctx": self._context_tokens,
                    "temperature": 0,
                    "seed": 0,
                },
                keep_alive=self._keep_alive_s,
            )
            async with aclosing(cast("AsyncGenerator[ollama.ChatResponse, None]", stream)) as parts:
                async for part in parts:
                    answer.add(part.message.content or "")
                    if part.done:
                        return Said(answer.content, part.done_reason or "an unknown reason")
        raise wrong_protocol()  # the stream ended before the model was done

    async def models(self, *, loaded: bool) -> tuple[ModelState, ...]:
        """Every model that was pulled.

        Raises:
            VlmError: the server doesn't tell.
        """
        with _translated("any"):
            listed = await self._client.list()
            running = await self._client.ps() if loaded else None
        names = None if running is None else {model.model or model.name for model in running.models}
        return tuple(_state(model, names) for model in listed.models if model.model)

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()  # type: ignore[no-untyped-call]


def _state(model: ollama.ListResponse.Model, loaded: set[str | None] | None) -> ModelState:
    digest = (model.digest or "").removeprefix("sha256:")
    return ModelState(
        name=str(model.model),
        version=f"{model.model}@{digest[:12]}" if digest else str(model.model),
        proven=len(digest) >= 12,
        loaded=None if loaded is None else model.model in loaded,
        size_bytes=int(model.size) if model.size is not None else None,
    )


@contextmanager
def _translated(model: str) -> Iterator[None]:
    """Errors of the client become ours; what quotes the server stays behind."""
    try:
        with translated():
            yield
    except ollama.ResponseError as error:
        raise refusal(error.status_code if error.status_code > 0 else 500, str(error.error), model) from None
    except (json.JSONDecodeError, UnicodeDecodeError, ValidationError, AttributeError, TypeError):
        raise wrong_protocol() from None
