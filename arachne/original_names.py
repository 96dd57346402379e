"""The original system's variables, read in place of ours where ARACHNE_COMPAT_ENV asks for it and ours are unset.

See docs/migration.md.
"""

import os
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from dotenv import dotenv_values
from pydantic import TypeAdapter, ValidationError
from pydantic.fields import FieldInfo
from pydantic_settings import PydanticBaseSettingsSource

from arachne.errors import SetupError

Place = Literal["the environment", ".env"]

# Each of the original's variables, and the setting it is read as.
NAMES = {
    "DATABASE_URL": "database_url",
    "REDIS_URL": "redis_url",
    "OLLAMA_HOST": "vlm_url",
    "MODEL_VERSION": "vlm_fast_model",
}
_OLLAMA_PORT = 11434


class OriginalNames(PydanticBaseSettingsSource):
    """The last source of settings: what the original's variables say of those that no other source knows."""

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:
        """Nothing for a field alone: all are read at once."""
        return None, field_name, False

    def __call__(self) -> dict[str, Any]:
        """Values by setting; none unless they are asked for.

        Raises:
            SetupError: OLLAMA_HOST names no server.
        """
        if not _is_true(self.current_state.get("compat_env", False)):
            return {}
        found = {setting: find_variable(theirs) for theirs, setting in NAMES.items()}
        return {
            setting: read_value(setting, variable[0])
            for setting, variable in found.items()
            if variable is not None and setting not in self.current_state
        }


def read_value(setting: str, value: str) -> str:
    """What the original's value is as this setting.

    Raises:
        SetupError: OLLAMA_HOST names no server.
    """
    return ollama_url(value) if setting == "vlm_url" else value


def find_variable(name: str) -> tuple[str, Place] | None:
    """A variable's value and where it stands: the environment, or else `.env`. An empty one counts as unset."""
    file = Path(".env")
    places: list[tuple[Place, dict[str, str | None]]] = [("the environment", dict(os.environ))]
    if file.is_file():
        places.append((".env", dotenv_values(file)))
    for place, variables in places:
        value = next((value for key, value in variables.items() if key.upper() == name.upper() and value), None)
        if value is not None:
            return value, place
    return None


def ollama_url(host: str) -> str:
    """The URL at which a client finds the server that OLLAMA_HOST names.

    The variable may lack scheme and port; an address that stands for all of a machine's is loopback to a client.

    Source: Ollama, envconfig.Host; `http://` means port 80 there too.

    Raises:
        SetupError: its port is no number.
    """
    text = host.strip().strip("\"'").rstrip("/")
    scheme, found, rest = text.partition("://")
    if not found:
        scheme, rest = "http", text
    try:
        split = urlsplit(f"{scheme}://{rest}")
        name, port = split.hostname or "127.0.0.1", split.port
    except ValueError as error:
        raise SetupError(f"OLLAMA_HOST is no address of a server: {error}. Set it to HOST:PORT or to a URL.") from None
    if port is None:
        port = {"http": 80, "https": 443}.get(scheme, _OLLAMA_PORT) if found else _OLLAMA_PORT
    return f"{scheme}://{_reachable(name)}:{port}{split.path}"


def _reachable(name: str) -> str:
    try:
        address = ip_address(name)
    except ValueError:
        return name
    if address.is_unspecified:
        return "127.0.0.1" if address.version == 4 else "[::1]"
    return name if address.version == 4 else f"[{name}]"


def _is_true(given: object) -> bool:
    try:
        return TypeAdapter(bool).validate_python(given)
    except ValidationError:
        return False  # which the settings themselves refuse, with the variable's name
