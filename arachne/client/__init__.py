"""The client library: images sent, waited for and read, with a token that is fetched and renewed by itself.

    with Client() as arachne:
        for image in arachne.extract(["a.png", "shots/"], detail_level="fast"):
            print(image.name, image.result.text if image.result else image.error)

Errors are those of `arachne.errors`: the service's refusals by their own classes, `ClientError` and its kinds for what
lies between.
"""

from arachne.client.asynchronous import AsyncClient
from arachne.client.results import Extracted, Progress, ProgressListener, Submission
from arachne.client.settings import ClientSettings
from arachne.client.sources import Source, Upload
from arachne.client.synchronous import Client
from arachne.client.terms import Terms
from arachne.client.verification import verify_webhook
from arachne.errors import (
    ArachneError,
    ClientError,
    ImageCancelled,
    SignatureRejected,
    SourceUnreadable,
    UnexpectedAnswer,
    Unfinished,
    Unreachable,
)
from arachne.schemas.queries import Format

__all__ = [
    "ArachneError",
    "AsyncClient",
    "Client",
    "ClientError",
    "ClientSettings",
    "Extracted",
    "Format",
    "ImageCancelled",
    "Progress",
    "ProgressListener",
    "SignatureRejected",
    "Source",
    "SourceUnreadable",
    "Submission",
    "Terms",
    "UnexpectedAnswer",
    "Unfinished",
    "Unreachable",
    "Upload",
    "verify_webhook",
]
