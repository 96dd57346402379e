"""What went wrong on the way to a model and back, as errors that say what to do.

A server's own words are looked at but never passed on: some servers quote the model's answer in them, which may hold
any words of the picture.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager

import httpx

from arachne.errors import VlmBusy, VlmError, VlmFailed, VlmModelMissing, VlmRefused, VlmTimedOut, VlmUnreachable

_BUSY = re.compile(r"busy|pending requests|queue|overload|loading", re.IGNORECASE)
_NO_MODEL = re.compile(r"model\b.*(not found|does not exist|not exist|not loaded)", re.IGNORECASE | re.DOTALL)
_NO_IMAGES = re.compile(
    r"(image|vision|multi-?modal)\b.*\b(not supported|unsupported|not support)|not support\w*\W.*\b(image|vision)"
    r"|not a multi-?modal model|mmproj",
    re.IGNORECASE | re.DOTALL,
)
_TOO_LONG = re.compile(r"context (size|length|window)|maximum context|too (long|many tokens)", re.IGNORECASE)
_NO_MEMORY = re.compile(r"out of memory|more system memory|insufficient memory|cudaMalloc", re.IGNORECASE)


@contextmanager
def translated() -> Iterator[None]:
    """Errors of the HTTP client become ours.

    Raises:
        VlmError: any of them.
    """
    try:
        yield
    except httpx.TimeoutException:
        raise timed_out() from None
    except (httpx.RemoteProtocolError, httpx.ReadError, httpx.WriteError, httpx.CloseError):
        raise VlmUnreachable("The model server broke the connection off. Look at its log.") from None
    except (httpx.TransportError, ConnectionError) as error:
        raise VlmUnreachable(
            f"The model server does not answer ({type(error).__name__}). Check ARACHNE_VLM_URL and that it runs."
        ) from None
    except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError):
        raise VlmFailed("The model server's answer is not HTTP as it should be. Check ARACHNE_VLM_URL.") from None


def timed_out() -> VlmTimedOut:
    """The error of an answer that isn't whole in time."""
    return VlmTimedOut("The model gave no whole answer in time. Raise ARACHNE_VLM_TIMEOUT_S, or use a smaller model.")


def wrong_protocol() -> VlmFailed:
    """The error of an answer that can't be understood at all."""
    return VlmFailed("The model server answered with what is not its protocol. Check ARACHNE_VLM_API and its version.")


def refusal(status: int, told: str, model: str, retry_after_s: float | None = None) -> VlmError:
    """The error of an HTTP status other than 200; `told` is what the server said about it."""
    if _NO_IMAGES.search(told):
        return VlmRefused(f"The model {model!r} takes no pictures. Choose a vision model.")
    if _TOO_LONG.search(told):
        return VlmRefused(f"Picture and question don't fit the context of {model!r}. Give it more on its server.")
    if status == 404 and _NO_MODEL.search(told):
        return VlmModelMissing(f"The model server has no {model!r}. Get it there, or choose another.")
    if status == 429 or (status == 503 and _BUSY.search(told)):
        return VlmBusy("The model server's queue is full. Lower ARACHNE_VLM_PARALLEL.", retry_after_s=retry_after_s)
    return _failure(status, told, model) if status >= 500 or status == 408 else _rejection(status)


def _failure(status: int, told: str, model: str) -> VlmError:
    if status in {408, 504}:
        return timed_out()
    if _NO_MEMORY.search(told):
        return VlmFailed(f"The model server has too little memory for {model!r}. Choose a smaller model.")
    return VlmFailed(f"The model server failed (status {status}). Look at its log.")


def _rejection(status: int) -> VlmError:
    if status in {401, 403}:
        return VlmRefused(f"The model server wants other credentials (status {status}). Check ARACHNE_VLM_API_KEY.")
    return VlmRefused(f"The model server refused the request (status {status}). Check ARACHNE_VLM_URL and its log.")
