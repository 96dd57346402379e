"""What all bodies of requests and answers have in common."""

from pydantic import BaseModel, ConfigDict


class WireModel(BaseModel):
    """A value that goes over the wire: a member nobody knows is an error, and nothing changes once it is made."""

    model_config = ConfigDict(extra="forbid", frozen=True)
