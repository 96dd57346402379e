"""What a server tells about its models."""

from collections.abc import Sequence
from dataclasses import dataclass

from arachne.errors import VlmModelMissing


@dataclass(frozen=True, slots=True)
class ModelState:
    """A model as its server tells of it now.

    `version` is the name with a digest of 12 hex digits; `proven` is whether other weights would give another one.
    `loaded` and `size_bytes` are None where the server doesn't tell.
    """

    name: str
    version: str
    proven: bool
    loaded: bool | None
    size_bytes: int | None


def find_model(name: str, states: Sequence[ModelState]) -> ModelState:
    """The model called `name`, which without a tag has the tag `latest`.

    Raises:
        VlmModelMissing: the server doesn't have it.
    """
    names = {name, f"{name}:latest"}
    for state in states:
        if state.name in names:
            return state
    known = ", ".join(state.name for state in states[:5]) or "none"
    raise VlmModelMissing(
        f"The model server has no {name!r}; it has: {known}. Get it there (Ollama: `ollama pull {name}`), "
        "or set ARACHNE_VLM_FAST_MODEL and ARACHNE_VLM_LARGE_MODEL to what it has."
    )
