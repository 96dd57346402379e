"""What a worker tells of the server of models, for other processes."""

from pydantic import BaseModel, ConfigDict


class ModelSeen(BaseModel):
    """A model that may be asked for. `loaded` is None where the server doesn't tell."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    loaded: bool | None = None
    healthy: bool = False


class VlmSeen(BaseModel):
    """Whether the server can be asked now, as one worker finds it, and its models; `reason` is why it can't."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    ok: bool
    reason: str | None = None
    models: dict[str, ModelSeen] = {}
