"""What workers tell of the model server shows in `/api/models` and `/readyz`."""

from collections.abc import AsyncIterator

import pytest

from arachne.http import readiness
from arachne.jobs.publications import Published, publish, publish_models
from arachne.jobs.workers import register, tell_vlm, unregister
from arachne.schemas.vlm import ModelSeen, VlmSeen
from tests.http.conftest import Service, Start

FAST, LARGE = "small", "large"


@pytest.fixture
async def service(start: Start, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Service]:
    """A service with two models, whose readiness is looked at anew each time."""
    monkeypatch.setattr(readiness, "KEPT_S", 0)
    async with start(vlm_url="http://127.0.0.1:9", vlm_fast_model=FAST, vlm_large_model=LARGE) as running:
        await running.account()
        yield running


async def tell(service: Service, worker_id: str, *, ok: bool, loaded: bool | None, healthy: bool) -> None:
    """A worker tells how it finds the server; it knows the fast model only."""
    seen = VlmSeen(ok=ok, models={FAST: ModelSeen(loaded=loaded, healthy=healthy)})
    await service.database.run(tell_vlm, worker_id, seen)


async def models(service: Service) -> dict[str, dict[str, object]]:
    """The models by name."""
    answer = await service.client.get("/api/models", headers=await service.headers())
    assert answer.status_code == 200
    return {model["model"]: model for model in answer.json()["data"]}


async def vlm_state(service: Service) -> tuple[int, str, str]:
    """What readiness says."""
    answer = await service.client.get("/readyz")
    return answer.status_code, answer.json()["status"], answer.json()["checks"]["vlm"]


async def test_before_any_worker_spoke_nothing_is_known(service: Service) -> None:
    """Both models are allowed, each with its route; whether they are there nobody can tell."""
    unknown = {"allowed": True, "loaded": None, "healthy": None, "digest": None}
    assert await models(service) == {
        FAST: {"model": FAST, "route": ["standard"], **unknown},
        LARGE: {"model": LARGE, "route": ["detailed"], **unknown},
    }
    assert await vlm_state(service) == (200, "degraded", "unavailable")


async def test_models_are_as_any_living_worker_finds_them(service: Service) -> None:
    """One worker that reaches a model will do; what was published outlives all of them."""
    run = service.database.run
    await run(publish, Published("p", ("eng",), {FAST: f"{FAST}@0123456789ab"}))
    far, near = await run(register, "gpu"), await run(register, "gpu")
    await tell(service, far, ok=False, loaded=None, healthy=False)
    found = (await models(service))[FAST]
    assert (found["loaded"], found["healthy"], found["digest"]) == (None, False, "0123456789ab")
    assert await vlm_state(service) == (200, "degraded", "unavailable")
    await tell(service, near, ok=True, loaded=True, healthy=True)
    found = (await models(service))[FAST]
    assert (found["loaded"], found["healthy"]) == (True, True)
    assert await vlm_state(service) == (200, "ok", "ok")
    await run(unregister, near)
    await run(unregister, far)
    found = (await models(service))[FAST]
    assert (found["loaded"], found["healthy"], found["digest"]) == (None, None, "0123456789ab")
    assert await vlm_state(service) == (200, "degraded", "unavailable")


async def test_a_worker_that_is_gone_tells_nothing_any_more(service: Service) -> None:
    """Its row may stay for a while; after its lease it counts no more."""
    worker_id = await service.database.run(register, "gpu")
    await tell(service, worker_id, ok=True, loaded=False, healthy=True)
    assert (await models(service))[FAST]["loaded"] is False
    await service.execute("UPDATE worker SET beat_at = now() - interval '1 hour'")
    assert (await models(service))[FAST]["loaded"] is None
    assert await vlm_state(service) == (200, "degraded", "unavailable")


async def test_new_weights_show(service: Service) -> None:
    """A digest published later takes the place of the one before, and of no other model's."""
    versions = {FAST: f"{FAST}@000000000000", LARGE: f"{LARGE}@aaaaaaaaaaaa"}
    await service.database.run(publish, Published("p", ("eng",), versions))
    await service.database.run(publish_models, {FAST: f"{FAST}@111111111111"})
    found = await models(service)
    assert (found[FAST]["digest"], found[LARGE]["digest"]) == ("111111111111", "aaaaaaaaaaaa")
