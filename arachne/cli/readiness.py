"""Tells, once, that the API serves requests."""

import sys
import time
import urllib.error
import urllib.request
from contextlib import suppress
from http.client import HTTPException

from arachne.embedded.journal import Echo

_REMIND_S = 30.0
_TIMEOUT_S = 5.0
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class Readiness:
    """Probes `/readyz` until it answers 200, then prints the one line on stdout."""

    def __init__(self, url: str, echo: Echo) -> None:
        self._url, self._echo = url, echo
        self._ready = False
        self._remind_at = time.monotonic() + _REMIND_S

    def probe(self) -> None:
        """Look once, unless it was ready before."""
        if self._ready:
            return
        answer = self._ask()
        if answer is None:
            self._ready = True
            with suppress(OSError):  # nobody reads stdout
                sys.stdout.write(f"ready {self._url}\n")
                sys.stdout.flush()
        elif time.monotonic() > self._remind_at:
            self._remind_at += _REMIND_S
            self._echo.say("up", f"not ready yet: {answer}")

    def _ask(self) -> str | None:
        """Why it is not ready; None if it is."""
        try:
            with _OPENER.open(f"{self._url}/readyz", timeout=_TIMEOUT_S):
                return None
        except urllib.error.HTTPError as error:
            with error, suppress(OSError, HTTPException):
                return f"{error.code} {error.read(500).decode(errors='replace')}"
            return str(error.code)
        except (OSError, ValueError, HTTPException) as error:  # also half an answer, of one that is being killed
            return str(error)
