"""Paths of the service. An id is one segment of them whatever is in it, so that none leads elsewhere."""

from urllib.parse import quote

JOBS, WEBHOOKS = "/api/extract/image-jobs", "/api/webhooks"


def job_path(job_id: str) -> str:
    """Where a job is."""
    return f"{JOBS}/{segment(job_id)}"


def endpoint_path(endpoint_id: str) -> str:
    """Where a webhook endpoint is."""
    return f"{WEBHOOKS}/{segment(endpoint_id)}"


def segment(given: str) -> str:
    """An id as one segment of a path."""
    quoted = quote(given, safe="")
    return quoted.replace(".", "%2E") if quoted in {".", ".."} else quoted  # which are ways through the path
