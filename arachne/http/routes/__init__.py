"""All routes, one module a subject."""

from arachne.http.operations import Resource
from arachne.http.routes import discovery, health, images, jobs, models, submissions, token, usage

_MODULES = (submissions, jobs, images, models, usage, token, discovery, health)


def all_resources() -> list[Resource]:
    """Every path the API answers."""
    return [resource for module in _MODULES for resource in module.RESOURCES]
