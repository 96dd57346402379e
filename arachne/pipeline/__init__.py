"""One image through the eight stages: what will run, under which version, and the run itself."""

from arachne.pipeline.description import described, prepare_description, undescribed
from arachne.pipeline.fingerprint import STAGES, pipeline_version
from arachne.pipeline.plan import ReadRequest, needed_stages, options_hash
from arachne.pipeline.reports import is_read
from arachne.pipeline.run import read_image

__all__ = [
    "STAGES",
    "ReadRequest",
    "described",
    "is_read",
    "needed_stages",
    "options_hash",
    "pipeline_version",
    "prepare_description",
    "read_image",
    "undescribed",
]
