"""Metrics over HTTP, on a port of their own: each process shows its own registry and nothing else.

Several processes on one machine are told apart by their ports, and Prometheus adds them up.
"""

import logging
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import gettempdir
from threading import Event, Thread

from prometheus_client import start_http_server
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from arachne.complaints import Complaints
from arachne.metrics import REGISTRY, family

log = logging.getLogger(__name__)
_complaints = Complaints(log)
# Counted from METRICS_PORT, so that the parts of one machine never meet.
OFFSETS = {"api": 0, "worker gpu": 1, "worker io": 2, "scheduler": 3}
AGAIN_S = 10.0
_DISK = family(
    "arachne_disk_free_bytes", "api, gpu, io, scheduler", "Bytes free where DATA_DIR and temporary files are", "folder"
)


class Disk(Collector):
    """How much room there is for what this process writes."""

    def __init__(self, data_dir: Path) -> None:
        self._folders = {"data": data_dir, "temporary": Path(gettempdir())}

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """One sample a folder; a folder that can't be looked at has none."""
        gauge = _DISK()
        for name, folder in self._folders.items():
            try:
                gauge.add_metric([name], shutil.disk_usage(folder).free)
            except OSError as error:
                _complaints.tell(f"the room in {folder} can't be told", error)
        yield gauge


@contextmanager
def exposed(host: str, port: int, *collectors: Collector) -> Iterator[None]:
    """The process's metrics, and these besides, at `host` and `port` until the block ends; nowhere for port 0.

    A port that is taken costs the metrics until it is free, and nothing else.
    """
    for collector in collectors:
        REGISTRY.register(collector)
    stopping = Event()
    thread = Thread(target=_listen, args=(host, port, stopping), name="arachne-metrics", daemon=True)
    try:
        if port:
            thread.start()
        yield
    finally:
        stopping.set()
        if port:
            thread.join()
        for collector in collectors:
            REGISTRY.unregister(collector)


def _listen(host: str, port: int, stopping: Event) -> None:
    told = False
    while not stopping.is_set():
        try:
            server, serving = start_http_server(port, addr=host, registry=REGISTRY)
        except OSError as error:
            if not told:
                log.warning(
                    "no metrics yet, %s:%d can't be listened on (%s); choose another ARACHNE_METRICS_PORT",
                    host, port, error.strerror,
                )  # fmt: skip
            told = True
            stopping.wait(AGAIN_S)
            continue
        log.info("metrics are at http://%s:%d/metrics", host, port)
        stopping.wait()
        server.shutdown()
        server.server_close()
        serving.join()
