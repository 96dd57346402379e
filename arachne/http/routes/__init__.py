"""All routes, one module a subject."""

from arachne.http.operations import Resource
from arachne.http.routes import (
    admin_accounts,
    admin_clients,
    admin_keys,
    admin_plans,
    console,
    deliveries,
    discovery,
    documents,
    events,
    health,
    images,
    jobs,
    models,
    retries,
    submissions,
    token,
    usage,
    webhooks,
)

_MODULES = (
    submissions,
    jobs,
    retries,
    images,
    models,
    events,
    webhooks,
    deliveries,
    usage,
    token,
    admin_accounts,
    admin_clients,
    admin_plans,
    admin_keys,
    discovery,
    health,
    documents,
    console,
)


def all_resources() -> list[Resource]:
    """Every path the API answers."""
    return [resource for module in _MODULES for resource in module.RESOURCES]


def undescribed_resources() -> list[Resource]:
    """Paths that are answered besides and are no part of the API: the way to the console, and what its page loads."""
    return list(console.FILES)
