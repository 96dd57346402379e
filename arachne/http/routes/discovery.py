"""`/.well-known/*`: the keys tokens verify with, and where the token endpoint is."""

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from arachne.http.operations import Answer, Operation, Resource
from arachne.http.parts import Parts
from arachne.schemas.token import SCOPES, KeySetView, ServerMetadata
from arachne.signing_keys import ensure_public_keys

KEYS_MAX_AGE_S = 300


async def show_keys(_: Request, parts: Parts) -> Response:
    """The public keys as a JWK set."""
    keys = await parts.database.run(lambda tx: ensure_public_keys(tx.session, parts.box))
    return JSONResponse(
        KeySetView(keys=keys).model_dump(), headers={"Cache-Control": f"public, max-age={KEYS_MAX_AGE_S}"}
    )


async def show_metadata(_: Request, parts: Parts) -> Response:
    """The authorization server's metadata. Source: RFC 8414."""
    base_url = parts.settings.base_url
    metadata = ServerMetadata(
        issuer=base_url,
        token_endpoint=f"{base_url}/api/auth/token",
        jwks_uri=f"{base_url}/.well-known/jwks.json",
        scopes_supported=list(SCOPES),
        response_types_supported=[],
        grant_types_supported=["client_credentials"],
        token_endpoint_auth_methods_supported=["client_secret_basic", "client_secret_post"],
        service_documentation=f"{base_url}/docs",
    )
    return JSONResponse(metadata.model_dump(), headers={"Cache-Control": f"public, max-age={KEYS_MAX_AGE_S}"})


RESOURCES = (
    Resource(
        "/.well-known/jwks.json",
        {
            "GET": Operation(
                show_keys,
                "The keys access tokens are signed with",
                scope=None,
                policy=None,
                answers={200: Answer("A JWK set", KeySetView)},
                errors=(503,),
            )
        },
    ),
    Resource(
        "/.well-known/oauth-authorization-server",
        {
            "GET": Operation(
                show_metadata,
                "Where to get tokens",
                scope=None,
                policy=None,
                answers={200: Answer("The metadata", ServerMetadata)},
            )
        },
    ),
)
