"""How the server of models is doing: looked at again and again, learnt by this worker and told to the API."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol

from arachne.complaints import Complaints
from arachne.errors import Unavailable, VlmError
from arachne.schemas.vlm import ModelSeen, VlmSeen
from arachne.stages.describe import DescribeReply
from arachne.vlm import Breaker, ModelState, find_model

log = logging.getLogger(__name__)
_complaints = Complaints(log)
LOOK_S = 10.0
LOOK_AGAIN_S = 2.0  # while it is ill


class Server(Protocol):
    """What can be asked which models it has."""

    async def models(self) -> tuple[ModelState, ...]:
        """Every model there. Raises VlmError where it doesn't tell."""


Tell = Callable[[Mapping[str, str], VlmSeen], Awaitable[object]]
"""Makes known the models' versions, where they are new, and how the server was found."""


class VlmWatch:
    """Looks at the server every few seconds, and when an answer shows that it has changed. For one event loop."""

    def __init__(self, server: Server, breaker: Breaker, models: Sequence[str], tell: Tell) -> None:
        self._server, self._breaker, self._models, self._tell = server, breaker, models, tell
        self._versions: dict[str, str] = {}
        self._event = asyncio.Event()
        self._state = breaker.state

    def notice(self, reply: DescribeReply | None) -> None:
        """Look again now if the breaker has opened or closed, or other weights than those known have answered."""
        changed = reply is not None and reply.model_version not in self._versions.values()
        if changed or self._breaker.state != self._state:
            self._event.set()

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            is_ok = await self._look()
            try:
                async with asyncio.timeout(LOOK_S if is_ok else LOOK_AGAIN_S):
                    await self._event.wait()
            except TimeoutError:
                pass
            self._event.clear()

    async def _look(self) -> bool:
        self._state = self._breaker.state
        states: tuple[ModelState, ...] = ()
        try:
            states = await self._server.models()
            reason = None if self._breaker.admits else "the model server fails"
        except VlmError as error:
            reason = error.message
        seen = {name: state for name in self._models if (state := _find(name, states)) is not None}
        versions = {name: state.version for name, state in seen.items()}
        models = {name: _seen(seen.get(name), reason) for name in self._models}
        news = {name: version for name, version in versions.items() if self._versions.get(name) != version}
        try:
            await self._tell(news, VlmSeen(ok=reason is None, reason=reason, models=models))
        except Unavailable as error:
            _complaints.tell("what the models are can't be told", error)
        else:
            self._versions |= versions
        return reason is None


def _find(name: str, states: Sequence[ModelState]) -> ModelState | None:
    try:
        return find_model(name, states)
    except VlmError:
        return None


def _seen(state: ModelState | None, reason: str | None) -> ModelSeen:
    return ModelSeen(loaded=state.loaded if state else None, healthy=state is not None and reason is None)
