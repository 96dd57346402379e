"""What Ollama tells of its models."""

from datetime import UTC, datetime
from typing import Any

from tests.standins.gpu import Loaded

_SIZE = 5_969_245_856


def now(at: float | None = None) -> str:
    """A time as Ollama writes it."""
    moment = datetime.now(UTC) if at is None else datetime.fromtimestamp(min(at, 4e9), UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%f000Z")


def listed(name: str, digest: str) -> dict[str, Any]:
    """An entry of `/api/tags`."""
    return {
        "name": name,
        "model": name,
        "modified_at": now(),
        "size": _SIZE,
        "digest": digest,
        "details": _details(),
    }


def running(one: Loaded, digest: str) -> dict[str, Any]:
    """An entry of `/api/ps`."""
    return {
        "name": one.model,
        "model": one.model,
        "size": _SIZE,
        "digest": digest,
        "details": _details(),
        "expires_at": now(one.expires_at),
        "size_vram": _SIZE,
        "context_length": one.context_tokens,
    }


def shown(name: str) -> dict[str, Any]:
    """What `/api/show` answers."""
    return {
        "modelfile": f"FROM {name}",
        "parameters": "temperature 0.0001",
        "template": "{{ .Prompt }}",
        "details": _details(),
        "model_info": {"general.architecture": "qwen25vl", "qwen25vl.context_length": 128_000},
        "capabilities": ["completion", "vision"],
        "modified_at": now(),
    }


def _details() -> dict[str, Any]:
    return {
        "parent_model": "",
        "format": "gguf",
        "family": "qwen25vl",
        "families": ["qwen25vl"],
        "parameter_size": "8.3B",
        "quantization_level": "Q4_K_M",
    }
