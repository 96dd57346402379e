"""A server of models with all the care it takes: deadlines, further attempts, and proof of which weights answered."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Protocol

from arachne.errors import SetupError, VlmError
from arachne.settings import Settings
from arachne.stages.describe import DescribeReply, DescribeRequest
from arachne.vlm.answer import Said
from arachne.vlm.faults import timed_out
from arachne.vlm.models import ModelState, find_model
from arachne.vlm.retry import Retry

log = logging.getLogger(__name__)
_LIST_S = 10.0


class Server(Protocol):
    """One protocol: each call is one attempt, without a deadline of its own. All raise VlmError."""

    async def ask(self, request: DescribeRequest) -> Said:
        """What a model says about a picture."""

    async def models(self, *, loaded: bool) -> tuple[ModelState, ...]:
        """Every model the server tells of; which of them are loaded too, where that is asked."""

    async def close(self) -> None:
        """Close the connections."""


class Backend:
    """Asks one server. Calls may overlap; how many do is the caller's to bound."""

    def __init__(self, server: Server, *, timeout_s: float, retry: Retry | None = None) -> None:
        self._server = server
        self._timeout_s = timeout_s
        self._retry = retry or Retry()
        self._seen: tuple[ModelState, ...] = ()

    async def describe(self, request: DescribeRequest, answered: Callable[[], object] = lambda: None) -> DescribeReply:
        """The model's reply, unchecked but for its size and for loops.

        `answered` is called once it is whole: the model could be asked again while its weights are still compared.

        Raises:
            VlmError: there is none, after all attempts that made sense.
        """
        before, said = await self._retry.run(partial(self._ask, request))
        answered()
        return DescribeReply(said.content, said.done_reason, before.version, await self._is_same(request.model, before))

    async def models(self) -> tuple[ModelState, ...]:
        """Every model the server tells of, as it is now; `find_model` finds one among them.

        Raises:
            VlmError: it doesn't tell.
        """
        return await self._look(loaded=True)

    async def close(self) -> None:
        """Close the connections."""
        await self._server.close()

    async def _look(self, *, loaded: bool = False) -> tuple[ModelState, ...]:
        async with _deadline(min(_LIST_S, self._timeout_s)):
            self._seen = await self._server.models(loaded=loaded)
        return self._seen

    async def _ask(self, request: DescribeRequest) -> tuple[ModelState, Said]:
        async with _deadline(self._timeout_s):
            # Any look at the server before the question will do, so the one after the last question is this one's too.
            before = await self._found(request.model, self._seen or await self._look())
            return before, await self._server.ask(request)

    async def _found(self, model: str, known: tuple[ModelState, ...]) -> ModelState:
        try:
            return find_model(model, known)
        except VlmError:
            return find_model(model, await self._look())  # it may have been pulled since

    async def _is_same(self, model: str, before: ModelState) -> bool:
        """Whether the answer is certainly that of the weights seen before it."""
        try:
            after = find_model(model, await self._look())
        except VlmError as error:
            log.warning("a description is not cached: %s", error.message)
            return False
        if after.version != before.version:
            log.warning("a description is not cached: the weights of %s changed meanwhile", model)
        return before.proven and after.proven and after.version == before.version


@asynccontextmanager
async def open_backend(settings: Settings, *, retry: Retry | None = None) -> AsyncIterator[Backend]:
    """The server the settings name, until the context ends. Connects to nothing yet.

    Raises:
        SetupError: there is none.
    """
    backend = Backend(_server(settings), timeout_s=settings.vlm_timeout_s, retry=retry)
    try:
        yield backend
    finally:
        await backend.close()


def _server(settings: Settings) -> Server:
    if settings.vlm_protocol == "ollama":
        from arachne.vlm.ollama import OllamaServer  # noqa: PLC0415  # each client loads in its own 0.2 s

        return OllamaServer(settings)
    if settings.vlm_protocol == "openai":
        from arachne.vlm.openai import OpenAiServer  # noqa: PLC0415

        return OpenAiServer(settings)
    raise SetupError("No vision-language model is configured. Set ARACHNE_VLM_URL to its server's URL.")


@asynccontextmanager
async def _deadline(timeout_s: float) -> AsyncIterator[None]:
    """A bound on the whole of what happens inside, however slowly it goes on.

    Raises:
        VlmTimedOut: it is over.
    """
    try:
        async with asyncio.timeout(timeout_s) as deadline:
            yield
    except TimeoutError:
        if deadline.expired():
            raise timed_out() from None
        raise
