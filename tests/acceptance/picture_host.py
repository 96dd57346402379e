"""A host of pictures on loopback."""

from collections import Counter

from aiohttp import web

from tests.standins.served import Served


class PictureHost(Served):
    """Gives `pages` by their path, and 404 for all others; a page that is a text redirects to it."""

    def __init__(self) -> None:
        super().__init__()
        self.pages: dict[str, bytes | str] = {}
        self.asked: Counter[str] = Counter()

    def url(self, path: str) -> str:
        """The URL of a page."""
        return f"http://127.0.0.1:{self.port}{path}"

    async def answer(self, request: web.Request) -> web.Response:
        """The page."""
        self.asked[request.path] += 1
        page = self.pages.get(request.path)
        if isinstance(page, str):
            return web.Response(status=302, headers={"Location": page})
        return web.Response(status=404) if page is None else web.Response(body=page)
