"""The same service as the actors' tests have, to be harmed."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from types import ModuleType

import pytest

from arachne.settings import Settings
from tests.machines import waiting

sys.path.insert(0, str(Path(__file__).parents[1] / "actors"))

import service_harness
import stage_faults as faulty_readers


@pytest.fixture
def stage_faults() -> ModuleType:
    """The faulty readers."""
    return faulty_readers


@pytest.fixture
def settings(tmp_path: Path, database_url: str, redis_url: str) -> Settings:
    """Settings of a small worker on this test's servers."""
    return service_harness.small_settings(tmp_path, database_url, redis_url)


@pytest.fixture
def service(settings: Settings) -> Iterator[service_harness.Service]:
    """An empty service, without anybody to work in it."""
    with service_harness.open_service(settings) as service:
        yield service


@pytest.fixture
def eventually() -> Callable[..., None]:
    """Waits until something holds."""
    return waiting.eventually


@pytest.fixture
def worker_process(settings: Settings) -> Callable[..., AbstractContextManager[subprocess.Popen[bytes]]]:
    """Starts GPU workers in processes of their own: `worker_process(reader)`."""
    return partial(service_harness.worker_process, settings)


@pytest.fixture
def part_process(settings: Settings) -> Callable[..., AbstractContextManager[subprocess.Popen[bytes]]]:
    """Starts parts in processes of their own: `part_process("io.run(Settings.load())")`."""
    return partial(service_harness.part_process, settings)
