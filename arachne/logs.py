"""One line a record on stderr, in UTC, with anything that looks like a credential blotted out."""

import logging
import re
import sys
import time

_CREDENTIALS = re.compile(
    r"(?P<bearer>Bearer\s+)\S+"
    r"|eyJ[\w-]{8,}\.[\w-]+\.[\w-]*"  # a JWT
    r"|ars_[\w-]{16,}"  # a client secret
    r"|wh(?:sec|sk)_[\w+/=-]{8,}"
    r"|(?P<url>://[^\s/:@]*:)[^\s/@]+(?=@)"  # a password in a URL
)
_QUIET = ("aiohttp.access", "alembic.runtime.plugins", "periodiq", "asyncio", "PIL", "httpx", "httpcore")


class _Formatter(logging.Formatter):
    converter = staticmethod(time.gmtime)

    def __init__(self) -> None:
        super().__init__("%(asctime)s.%(msecs)03dZ %(levelname)s %(name)s: %(message)s", "%Y-%m-%dT%H:%M:%S")

    def format(self, record: logging.LogRecord) -> str:
        return blot(super().format(record))


def blot(text: str) -> str:
    """`text` without tokens, signing secrets and passwords in URLs."""
    return _CREDENTIALS.sub(lambda found: (found["bearer"] or found["url"] or "") + "***", text)


def configure(level: str) -> None:
    """All logging of this process goes to stderr from `level` up; libraries that chatter from WARNING up."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Formatter())
    logging.basicConfig(level=level, handlers=[handler], force=True)
    for name in _QUIET:
        logging.getLogger(name).setLevel(max(logging.WARNING, logging.getLevelName(level)))
    logging.captureWarnings(capture=True)
