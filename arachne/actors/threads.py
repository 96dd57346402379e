"""Threads that work on one image at a time, whose log records name it and whose spans are part of its job's trace."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Concatenate, ParamSpec

from arachne import logs, tracing
from arachne.jobs.claim import Claimed

P = ParamSpec("P")


class ImageThreads:
    """A pool of threads, each piece of whose work is about an image."""

    def __init__(self, number: int, name: str) -> None:
        self._threads = ThreadPoolExecutor(number, thread_name_prefix=name)

    def submit(
        self, work: Callable[Concatenate[Claimed, P], object], image: Claimed, *args: P.args, **kwargs: P.kwargs
    ) -> None:
        """Have `work` done soon."""

        def about_image() -> None:
            with logs.bound(**image.ids), tracing.within(image.traceparent):
                work(image, *args, **kwargs)

        self._threads.submit(about_image)

    def shutdown(self, *, wait: bool = True, cancel_futures: bool = False) -> None:
        """Take no more work."""
        self._threads.shutdown(wait=wait, cancel_futures=cancel_futures)
