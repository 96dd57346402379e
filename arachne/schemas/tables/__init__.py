"""The schema of record. Every table is here, so that `metadata` is complete wherever one of them is imported."""

from sqlmodel import SQLModel

from arachne.schemas.tables.accounts import Account, ApiClient, Plan, RevokedToken, SigningKey
from arachne.schemas.tables.jobs import Blob, ErasedResult, Flight, IdempotencyKey, Image, ImageResult, Job, Served
from arachne.schemas.tables.logs import ApiUsageLog, AuditLog, UsageEntry
from arachne.schemas.tables.webhooks import WebhookAttempt, WebhookDelivery, WebhookEndpoint, WebhookMessage
from arachne.schemas.tables.workers import Gate, Publication, Worker

metadata = SQLModel.metadata
# Append-only logs, one partition a day: old days are dropped whole, without a DELETE.
PARTITIONED_BY_DAY = ("api_usage_log", "webhook_attempt")

__all__ = [
    "PARTITIONED_BY_DAY",
    "Account",
    "ApiClient",
    "ApiUsageLog",
    "AuditLog",
    "Blob",
    "ErasedResult",
    "Flight",
    "Gate",
    "IdempotencyKey",
    "Image",
    "ImageResult",
    "Job",
    "Plan",
    "Publication",
    "RevokedToken",
    "Served",
    "SigningKey",
    "UsageEntry",
    "WebhookAttempt",
    "WebhookDelivery",
    "WebhookEndpoint",
    "WebhookMessage",
    "Worker",
    "metadata",
]
