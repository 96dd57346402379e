"""`GET /api/models`: the vision-language models a request may name."""

from starlette.requests import Request
from starlette.responses import Response

from arachne.http.answers import to_json
from arachne.http.operations import Answer, Operation, Resource
from arachne.http.parts import Parts
from arachne.jobs.publications import Published, published
from arachne.reading import allowed_models
from arachne.schemas.listing import ModelList, ModelView
from arachne.settings import Settings


async def show_models(_: Request, parts: Parts) -> Response:
    """The allowed models, with what workers published of them."""
    facts = await parts.database.run(published)
    data = [_view(name, parts.settings, facts) for name in allowed_models(parts.settings)]
    return to_json(ModelList(data=data, next_cursor=None).model_dump(mode="json"))


def _view(name: str, settings: Settings, facts: Published | None) -> ModelView:
    routes = [("standard", settings.vlm_fast_model), ("detailed", settings.vlm_large_model)]
    version = facts.model_version(name) if facts is not None else name
    _, _, digest = version.partition("@")
    return ModelView(
        model=name,
        route=[route for route, model in routes if model == name],
        allowed=True,
        loaded=None,
        healthy=None,
        digest=digest or None,
    )


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
                errors=(503,),
            )
        },
    ),
)
