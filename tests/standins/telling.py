"""One answer on its way: in lines or whole, at the pace and with the faults that were asked for."""

import asyncio
import json
import time
from collections.abc import Mapping
from itertools import count
from typing import Any

from aiohttp import web

from tests.standins.answers import LOOP
from tests.standins.behaviour import Behaviour, Fault
from tests.standins.listing import now

_NS = 1_000_000_000


class Telling:
    """Tells one answer; times are those of the behaviour."""

    def __init__(
        self, request: web.Request, body: Mapping[str, Any], behaviour: Behaviour, *, model: str, load_s: float
    ) -> None:
        self._request, self._body, self._behaviour = request, body, behaviour
        self._model, self._load_s, self._started = model, load_s, time.monotonic() - load_s
        self._response = web.StreamResponse(headers={"Content-Type": "application/x-ndjson"})

    async def tell(self, content: str, reason: str, fault: Fault | None) -> web.StreamResponse:
        """The answer, told as far as the fault lets it."""
        if fault == "html":
            return web.Response(text="<html><body>502 Bad Gateway</body></html>", content_type="text/html")
        content, reason = self._within_budget(content, reason)
        if self._body.get("stream") is False and fault not in {"stall", "drip", "huge", "endless_line", "reset"}:
            await asyncio.sleep(self._behaviour.answer_s)
            return web.json_response(self._message(content) | self._end(content, reason))
        await self._response.prepare(self._request)
        pieces = self._pieces(content)
        if fault in {"error_in_stream", "stall", "broken_off", "reset"}:
            pieces = pieces[: max(1, len(pieces) // 2)]
        for piece in pieces:
            await asyncio.sleep(self._behaviour.answer_s / len(pieces))
            await self._line(self._message(piece) | {"done": False})
        if not await self._fail(fault):
            await self._line(self._message("") | self._end(content, reason))
        await self._response.write_eof()
        return self._response

    async def _fail(self, fault: Fault | None) -> bool:
        """Whether the answer ends here, after doing what the fault does."""
        match fault:
            case "error_in_stream":
                await self._line({"error": "an error was encountered while running the model: unexpected EOF"})
            case "stall":
                await asyncio.Event().wait()
            case "reset":
                assert self._request.transport is not None
                self._request.transport.abort()
            case "drip":
                for number in count():
                    await self._line(self._message(chr(97 + number * 7 % 26)) | {"done": False})
                    await asyncio.sleep(self._behaviour.drip_s)
            case "huge":
                for number in count():
                    await self._line(self._message(f"word{number} " * 100) | {"done": False})
            case "endless_line":
                while True:
                    await self._response.write(b"a" * 65_536)
            case "broken_off":
                return True
            case _:
                return False
        return True

    def _within_budget(self, content: str, reason: str) -> tuple[str, str]:
        """What of it `num_predict` tokens, of about four characters, leave."""
        budget = (self._body.get("options") or {}).get("num_predict", -1)
        if budget < 0 or _tokens(content) <= budget:
            return content, reason
        return content[: 4 * budget], "length"

    def _pieces(self, content: str) -> list[str]:
        step = len(LOOP) * 8 if content.count(LOOP) > 9 else max(1, -(-len(content) // self._behaviour.pieces))
        return [content[at : at + step] for at in range(0, len(content), step)] or [""]

    async def _line(self, told: dict[str, Any]) -> None:
        await self._response.write(json.dumps(told).encode() + b"\n")

    def _message(self, content: str) -> dict[str, Any]:
        return {"model": self._model, "created_at": now(), "message": {"role": "assistant", "content": content}}

    def _end(self, content: str, reason: str) -> dict[str, Any]:
        total_s = time.monotonic() - self._started
        return {
            "done": True,
            "done_reason": reason,
            "total_duration": int(total_s * _NS),
            "load_duration": int(self._load_s * _NS),
            "prompt_eval_count": 1200,
            "prompt_eval_duration": int(self._behaviour.answer_s * 0.2 * _NS),
            "eval_count": _tokens(content),
            "eval_duration": int(self._behaviour.answer_s * 0.8 * _NS),
        }


def _tokens(content: str) -> int:
    return -(-len(content) // 4)
