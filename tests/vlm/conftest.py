"""A question to ask, and backends for servers that tests run."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

import numpy as np
import pytest

from arachne.settings import Settings
from arachne.stages.describe import DescribeOptions, DescribeRequest, request_for
from arachne.vlm import Backend, Retry, open_backend

Ask = Callable[..., DescribeRequest]
Open = Callable[..., AbstractAsyncContextManager[Backend]]


@pytest.fixture
def ask() -> Ask:
    """Makes the question about a plain picture."""

    def make(model: str = "qwen2.5vl:7b", size: tuple[int, int] = (640, 480), **options: object) -> DescribeRequest:
        rgb = np.full((size[1], size[0], 3), 200, np.uint8)
        return request_for(rgb, "Save all changes", DescribeOptions(model, **options))  # type: ignore[arg-type]

    return make


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Open:
    """Opens a backend for a URL; it asks again at once, and at most three times."""
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")  # an ill-set environment must not come in between

    def make(url: str, **settings: object) -> AbstractAsyncContextManager[Backend]:
        retry = settings.pop("retry", Retry(first_s=0.001))
        assert isinstance(retry, Retry)
        return open_backend(Settings.load(vlm_url=url, **settings), retry=retry)

    return make
