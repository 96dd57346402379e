"""`GET /api/models`: the vision-language models a request may name."""

from collections.abc import Iterable, Sequence

from starlette.requests import Request
from starlette.responses import Response

from arachne.http.answers import to_json
from arachne.http.operations import Answer, Operation, Resource
from arachne.http.parts import Parts
from arachne.jobs.publications import Published, published
from arachne.jobs.workers import vlm_seen
from arachne.reading import allowed_models
from arachne.schemas.listing import ModelList, ModelView
from arachne.schemas.vlm import VlmSeen
from arachne.settings import Settings


async def show_models(_: Request, parts: Parts) -> Response:
    """The allowed models, with what workers published of them, and how those that live find them."""
    facts = await parts.database.run(published)
    seen = await parts.database.run(vlm_seen, parts.settings.lease_s)
    data = [_view(name, parts.settings, facts, seen) for name in allowed_models(parts.settings)]
    return to_json(ModelList(data=data, next_cursor=None).model_dump(mode="json"))


def _view(name: str, settings: Settings, facts: Published | None, seen: Sequence[VlmSeen]) -> ModelView:
    routes = [("standard", settings.vlm_fast_model), ("detailed", settings.vlm_large_model)]
    version = facts.model_version(name) if facts is not None else name
    _, _, digest = version.partition("@")
    by_worker = [one.models[name] for one in seen if name in one.models]
    return ModelView(
        model=name,
        route=[route for route, model in routes if model == name],
        allowed=True,
        loaded=_any(model.loaded for model in by_worker),
        healthy=_any(model.healthy for model in by_worker),
        digest=digest or None,
    )


def _any(told: Iterable[bool | None]) -> bool | None:
    """Whether one worker says so; None where none says anything."""
    known = [one for one in told if one is not None]
    return any(known) if known else None


RESOURCES = (
    Resource(
        "/api/models",
        {
            "GET": Operation(
                show_models,
                "Models a request may name",
                scope="vision:read",
                policy="other",
                answers={200: Answer("The models", ModelList)},
            )
        },
    ),
)
