"""Connections on which a proper head of an answer counts, whatever nonsense comes behind it.

A parser that is given head and body at once reports a broken body in place of the head; given one after the other, it
reports the head first.
"""

from functools import partial

import aiohttp
from aiohttp.client_proto import ResponseHandler

_BLANK_LINE = b"\r\n\r\n"
_MAX_HEADS = 4  # interim answers may come before the final one


class Connector(aiohttp.TCPConnector):
    """A connector whose connections read answers so."""

    def __init__(self, **options: object) -> None:
        super().__init__(**options)  # type: ignore[arg-type]  # passed on as they are
        self._factory = partial(_HeadFirst, loop=self._loop)  # type: ignore[assignment]  # a subclass's


class _HeadFirst(ResponseHandler):
    """What arrives is parsed up to the first blank lines, and only then what follows them."""

    _heads = 0
    _before = b""

    def data_received(self, data: bytes) -> None:
        """Parse what has arrived."""
        while data and self._heads < _MAX_HEADS:
            known = len(self._before)
            end = (self._before + data).find(_BLANK_LINE)
            if end < 0:
                self._before = (self._before + data)[-len(_BLANK_LINE) + 1 :]
                break
            cut = end + len(_BLANK_LINE) - known
            self._heads, self._before = self._heads + 1, b""
            super().data_received(data[:cut])
            data = data[cut:]
        if data:
            super().data_received(data)
