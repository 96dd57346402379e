"""Servers of vision-language models: what they have, and what they say about a picture."""

from arachne.vlm.backend import Backend, open_backend
from arachne.vlm.breaker import Breaker, BreakerState
from arachne.vlm.models import ModelState, find_model
from arachne.vlm.retry import Retry

__all__ = ["Backend", "Breaker", "BreakerState", "ModelState", "Retry", "find_model", "open_backend"]
