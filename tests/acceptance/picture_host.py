"""A host of pictures on loopback."""

import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self


class PictureHost:
    """Gives `pages` by their path, and 404 for all others; a page that is a text redirects to it."""

    def __init__(self) -> None:
        self.pages: dict[str, bytes | str] = {}
        self.asked: Counter[str] = Counter()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self.port = int(self._server.server_address[1])

    def url(self, path: str) -> str:
        """The URL of a page."""
        return f"http://127.0.0.1:{self.port}{path}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        host = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                path = self.path.partition("?")[0]
                host.asked[path] += 1
                page = host.pages.get(path)
                self.send_response(404 if page is None else 302 if isinstance(page, str) else 200)
                if isinstance(page, str):
                    self.send_header("Location", page)
                body = page if isinstance(page, bytes) else b""
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        return Handler
