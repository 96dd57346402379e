"""Webhook endpoints for programs without asyncio."""

from collections.abc import Iterator, Sequence

from arachne.client.portal import Portal
from arachne.client.webhook_endpoints import AsyncWebhooks
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


class Webhooks:
    """The account's webhook endpoints."""

    def __init__(self, webhooks: AsyncWebhooks, portal: Portal) -> None:
        self._webhooks = webhooks
        self._portal = portal

    def add(
        self, url: str, *, events: Sequence[str] | None = None, description: str | None = None, enabled: bool = True
    ) -> NewEndpointView:
        """A new endpoint; its secret is shown only now."""
        return self._portal.run(
            lambda: self._webhooks.add(url, events=events, description=description, enabled=enabled)
        )

    def all(self) -> Iterator[EndpointView]:
        """Every endpoint, oldest first."""
        return self._portal.iterate(self._webhooks.all())

    def get(self, endpoint_id: str) -> EndpointView:
        """One endpoint."""
        return self._portal.run(lambda: self._webhooks.get(endpoint_id))

    def change(self, endpoint_id: str, **changes: object) -> EndpointView:
        """The endpoint with other `url`, `events`, `description` or `enabled`."""
        return self._portal.run(lambda: self._webhooks.change(endpoint_id, **changes))

    def remove(self, endpoint_id: str) -> None:
        """Nothing: the endpoint is gone."""
        self._portal.run(lambda: self._webhooks.remove(endpoint_id))

    def rotate(self, endpoint_id: str, *, grace_seconds: int = 86_400) -> SecretView:
        """The endpoint's new secret; the old one signs beside it for the grace."""
        return self._portal.run(lambda: self._webhooks.rotate(endpoint_id, grace_seconds=grace_seconds))

    def test(self, endpoint_id: str) -> AttemptView:
        """The attempt to deliver a `webhook.test`, made now."""
        return self._portal.run(lambda: self._webhooks.test(endpoint_id))

    def default_secret(self) -> SecretView:
        """The secret that signs events to jobs' own URLs."""
        return self._portal.run(self._webhooks.default_secret)

    def deliveries(
        self, endpoint_id: str, *, status: DeliveryStatus | None = None, event: str | None = None
    ) -> Iterator[DeliveryView]:
        """What was sent to the endpoint, newest first."""
        return self._portal.iterate(self._webhooks.deliveries(endpoint_id, status=status, event=event))

    def delivery(self, endpoint_id: str, message_id: str) -> DeliveryDetailView:
        """One delivery with every attempt."""
        return self._portal.run(lambda: self._webhooks.delivery(endpoint_id, message_id))

    def redeliver(self, endpoint_id: str, message_id: str) -> DeliveryView:
        """The delivery, due now."""
        return self._portal.run(lambda: self._webhooks.redeliver(endpoint_id, message_id))

    def recover(
        self, endpoint_id: str, *, since: str | None = None, until: str | None = None, dry_run: bool = False
    ) -> RecoveryView:
        """The events the endpoint missed, due now or only listed; times are RFC 3339."""
        return self._portal.run(lambda: self._webhooks.recover(endpoint_id, since=since, until=until, dry_run=dry_run))
