"""Whose job was cancelled is worked on no more."""

import pytest
import service_harness

from arachne.jobs.cancel import cancel_images, request_cancel
from tests.machines.waiting import eventually

pytestmark = pytest.mark.processes


def test_subprocesses_of_cancelled_images_are_free_again(tmp_path, database_url, redis_url, stage_faults) -> None:
    """Images that would hang for ten minutes are dropped with their subprocesses, which others then have."""
    settings = service_harness.small_settings(tmp_path, database_url, redis_url, hard_time_limit_s=600.0)
    with service_harness.open_service(settings) as service, service.dispatcher(stage_faults.read_or_fail):
        hanging = service.submit("hang", "hang", options={"cache": "bypass"})
        eventually(lambda: {image.state for image in service.images(hanging)} == {"running"})
        service.database.run(request_cancel, hanging)
        service.database.run(cancel_images, hanging, settings)
        assert service.job(hanging).state == "cancelled"
        assert service.await_finished(service.submit("a", "b", "c")).state == "completed"
        assert {image.attempts for image in service.images(hanging)} == {0}
