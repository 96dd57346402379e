"""What a client may ask for, as validated from the wire."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from arachne.schemas.result import StageName
from arachne.schemas.wire import WireModel

DetailLevel = Literal["fast", "standard", "detailed"]
Profile = Literal["screenshot", "document", "slip"]
CacheMode = Literal["use", "refresh", "bypass"]


class Options(WireModel):
    """Options of a submission. `languages` None means the service's setting."""

    detail_level: DetailLevel = "standard"
    stages: Annotated[list[StageName], Field(min_length=1, max_length=8)] | None = None
    model: Annotated[str, Field(min_length=1, max_length=200)] = "auto"
    languages: (
        Annotated[list[Annotated[str, Field(pattern=r"^[A-Za-z_]{3,20}$|^auto$")]], Field(min_length=1, max_length=8)]
        | None
    ) = None
    prompt: Annotated[str, Field(max_length=2000)] | None = None
    frames: Literal["first", "all"] = "first"
    cache: CacheMode = "use"
    profile: Profile = "screenshot"

    @model_validator(mode="after")
    def _stages_once_in_order(self) -> Self:
        if self.stages is not None and len(set(self.stages)) != len(self.stages):
            raise ValueError("stages: each name once")
        return self
