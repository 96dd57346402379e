"""The form of every error answer. Source: RFC 9457."""

from pydantic import BaseModel, ConfigDict

from arachne.schemas.wire import WireModel


class FieldProblem(WireModel):
    """One fault of a request: where it is and what is wrong with it."""

    loc: list[str | int]
    msg: str


class Problem(BaseModel):
    """An error; `code` is the stable word to branch on. Rate limits add the member `violated-policies`."""

    model_config = ConfigDict(extra="allow", frozen=True)

    type: str
    title: str
    status: int
    detail: str
    code: str
    request_id: str
    errors: list[FieldProblem] | None = None
