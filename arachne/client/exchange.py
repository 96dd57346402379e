"""Requests as models, objects and lists: what the methods of a client are made of."""

import json as text
from collections.abc import AsyncGenerator
from typing import TypeVar

from pydantic import BaseModel

from arachne.client.connection import Call, Connection, Params
from arachne.client.refusals import read_json, read_model, read_object
from arachne.errors import UnexpectedAnswer

M = TypeVar("M", bound=BaseModel)
_PAGE = 200


class Exchange:
    """The service's answers in the forms that callers want."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def call(
        self, method: str, path: str, *, json: object = None, params: Params | None = None
    ) -> dict[str, object]:
        """The answer's object, empty where there is none.

        Raises:
            ArachneError: the service refused, or can't be reached.
        """
        return read_object(await self._connection.send(Call(method, path, params=params, json=json)))

    async def fetch(
        self, model: type[M], method: str, path: str, *, json: object = None, params: Params | None = None
    ) -> M:
        """The answer as a model.

        Raises:
            ArachneError: as `call`.
        """
        return read_model(model, await self._connection.send(Call(method, path, params=params, json=json)))

    async def content(self, path: str, params: Params | None = None) -> bytes:
        """The answer's bytes.

        Raises:
            ArachneError: as `call`.
        """
        call = Call("GET", path, params=params, headers={"Accept": "*/*"})
        return (await self._connection.send(call)).content

    async def every(self, path: str, params: Params | None = None) -> AsyncGenerator[dict[str, object], None]:
        """Every member of a list, page after page.

        Raises:
            ArachneError: as `call`.
        """
        cursor: object = None
        while True:
            place = {"cursor": str(cursor)} if cursor else {}
            page = await self.call("GET", path, params={"limit": _PAGE, **(params or {}), **place})
            rows, cursor = page.get("data"), page.get("next_cursor")
            if not isinstance(rows, list):
                raise UnexpectedAnswer(f"{path} answered with no list. Check that ARACHNE_URL is the service's.")
            for row in rows:
                yield row
            if cursor is None:
                return

    async def list(self, model: type[M], path: str, params: Params | None = None) -> AsyncGenerator[M, None]:
        """Every member of a list as a model.

        Raises:
            ArachneError: as `call`.
        """
        async for row in self.every(path, params):
            yield read_json(model, text.dumps(row), path)
