"""Webhook endpoints and their deliveries, as a client manages them."""

from collections.abc import AsyncGenerator, Sequence

from arachne.client.exchange import Exchange
from arachne.client.paths import WEBHOOKS, endpoint_path, segment
from arachne.schemas.webhook import (
    AttemptView,
    DeliveryDetailView,
    DeliveryStatus,
    DeliveryView,
    EndpointView,
    NewEndpointView,
    RecoveryView,
    SecretView,
)


class AsyncWebhooks:
    """The account's webhook endpoints."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange

    async def add(
        self, url: str, *, events: Sequence[str] | None = None, description: str | None = None, enabled: bool = True
    ) -> NewEndpointView:
        """A new endpoint; its secret is shown only now."""
        told = {"url": url, "events": _listed(events), "description": description, "enabled": enabled}
        return await self._exchange.fetch(NewEndpointView, "POST", WEBHOOKS, json=told)

    def all(self) -> AsyncGenerator[EndpointView, None]:
        """Every endpoint, oldest first."""
        return self._exchange.list(EndpointView, WEBHOOKS)

    async def get(self, endpoint_id: str) -> EndpointView:
        """One endpoint."""
        return await self._exchange.fetch(EndpointView, "GET", endpoint_path(endpoint_id))

    async def change(self, endpoint_id: str, **changes: object) -> EndpointView:
        """The endpoint with other `url`, `events`, `description` or `enabled`."""
        return await self._exchange.fetch(EndpointView, "PATCH", endpoint_path(endpoint_id), json=changes)

    async def remove(self, endpoint_id: str) -> None:
        """Nothing: the endpoint is gone."""
        await self._exchange.call("DELETE", endpoint_path(endpoint_id))

    async def rotate(self, endpoint_id: str, *, grace_seconds: int = 86_400) -> SecretView:
        """The endpoint's new secret; the old one signs beside it for the grace."""
        json = {"grace_seconds": grace_seconds}
        return await self._exchange.fetch(SecretView, "POST", f"{endpoint_path(endpoint_id)}/rotate", json=json)

    async def test(self, endpoint_id: str) -> AttemptView:
        """The attempt to deliver a `webhook.test`, made now."""
        return await self._exchange.fetch(AttemptView, "POST", f"{endpoint_path(endpoint_id)}/test")

    async def default_secret(self) -> SecretView:
        """The secret that signs events to jobs' own URLs."""
        return await self._exchange.fetch(SecretView, "GET", f"{WEBHOOKS}/default/secret")

    def deliveries(
        self, endpoint_id: str, *, status: DeliveryStatus | None = None, event: str | None = None
    ) -> AsyncGenerator[DeliveryView, None]:
        """What was sent to the endpoint, newest first."""
        params = {name: value for name, value in (("status", status), ("event", event)) if value is not None}
        return self._exchange.list(DeliveryView, f"{endpoint_path(endpoint_id)}/deliveries", params)

    async def delivery(self, endpoint_id: str, message_id: str) -> DeliveryDetailView:
        """One delivery with every attempt."""
        path = f"{endpoint_path(endpoint_id)}/deliveries/{segment(message_id)}"
        return await self._exchange.fetch(DeliveryDetailView, "GET", path)

    async def redeliver(self, endpoint_id: str, message_id: str) -> DeliveryView:
        """The delivery, due now."""
        path = f"{endpoint_path(endpoint_id)}/deliveries/{segment(message_id)}/redeliver"
        return await self._exchange.fetch(DeliveryView, "POST", path)

    async def recover(
        self, endpoint_id: str, *, since: str | None = None, until: str | None = None, dry_run: bool = False
    ) -> RecoveryView:
        """The events the endpoint missed, due now or only listed; times are RFC 3339."""
        json = {"since": since, "until": until, "dry_run": dry_run}
        return await self._exchange.fetch(RecoveryView, "POST", f"{endpoint_path(endpoint_id)}/recover", json=json)


def _listed(events: Sequence[str] | None) -> list[str] | None:
    return None if events is None else list(events)
