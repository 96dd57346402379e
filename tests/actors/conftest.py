"""A service below HTTP for tests: on servers of its own test, or one with a dispatcher for a whole module."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

from arachne.embedded import Servers
from arachne.settings import Settings
from tests.machines import waiting

sys.path.insert(0, str(Path(__file__).parent))  # subprocesses import the faulty readers by name

import service_harness
import stage_faults as faulty_readers


@pytest.fixture(scope="session")
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


@pytest.fixture(scope="module")
def busy_service(
    tmp_path_factory: pytest.TempPathFactory, embedded: Servers, new_database_url: Callable[[], str]
) -> Iterator[service_harness.Service]:
    """A service of this module's own with one dispatcher, since subprocesses take their time to start."""
    settings = service_harness.small_settings(tmp_path_factory.mktemp("busy"), new_database_url(), embedded.redis_url)
    with service_harness.open_service(settings) as service, service.dispatcher(faulty_readers.read_or_fail):
        yield service


@pytest.fixture
def eventually() -> Callable[..., None]:
    """Waits until something holds."""
    return waiting.eventually
