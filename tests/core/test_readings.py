"""What of a stored result another description builds on, and which requests share it."""

import json
import zlib

import pytest
from sqlalchemy import text

from arachne.bodies import compress
from arachne.cache import VisionCache, base_of, finished_reading, insert_result, load_reading
from arachne.cache.shared import CachedReading
from arachne.jobs.publications import Published
from arachne.pipeline import described, is_read
from arachne.reading import cache_key
from arachne.schemas.options import Options
from arachne.schemas.result import STAGE_NAMES, Result, Vlm
from arachne.settings import Settings

WITH_VLM = Settings(_env_file=None, vlm_url="http://127.0.0.1:11434", vlm_fast_model="small", vlm_large_model="large")
FACTS = Published("pipeline-1", ("eng", "tha"), {"small": "small@0123456789ab"})


def key(facts: Published = FACTS, **options: object):
    return cache_key(Options(**options), "acc_1", "d" * 64, WITH_VLM, facts)  # type: ignore[arg-type]


def result(pages: int = 1, **statuses: str) -> Result:
    """A result as the pipeline gives it, its stages `ok` but for those named."""
    statuses = dict.fromkeys(STAGE_NAMES[:-1], "ok") | {"describe": "skipped"} | statuses
    stages = [
        {"name": name, "status": status, "ms": 7.0, "cached": False, "reason": None}
        for name, status in statuses.items()
    ]
    one = dict.fromkeys(Result.model_fields) | {
        "image": {
            "sha256": "d" * 64, "format": "png", "width": 1, "height": 1, "frames": pages, "exif_orientation": 1,
            "warnings": [],
        },
        "text": "read", "stages": stages, "degraded": False, "model_version": "none", "pipeline_version": "p",
    }  # fmt: skip
    return Result.model_validate(one | {"pages": [one] * pages if pages > 1 else None})


@pytest.mark.parametrize(
    "options", [{"prompt": "more"}, {"model": "large"}, {"detail_level": "detailed"}, {"stages": ["structure"]}]
)
def test_requests_that_differ_in_the_description_share_their_reading(options: dict[str, object]) -> None:
    assert key(**options).digest != key().digest
    assert key(**options).reading == key().reading


def test_new_digest_of_a_model_keeps_the_reading() -> None:
    newer = Published("pipeline-1", ("eng", "tha"), {"small": "small@ba9876543210"})
    assert key(facts=newer).digest != key().digest
    assert key(facts=newer).reading == key().reading


@pytest.mark.parametrize(
    "options", [{"detail_level": "fast"}, {"languages": ["tha"]}, {"frames": "all"}, {"profile": "slip"}]
)
def test_requests_that_read_otherwise_have_another_reading(options: dict[str, object]) -> None:
    assert key(**options).reading != key().reading


def test_new_pipeline_reads_anew() -> None:
    assert key(facts=Published("pipeline-2", ("eng", "tha"))).reading != key().reading


def test_reading_is_what_a_request_without_description_gets() -> None:
    """Its key is the same one, so that either answers for the other."""
    plain = key(stages=["structure"])
    assert plain.reading == plain == key().reading
    assert key(detail_level="detailed", stages=["structure"]) == plain


@pytest.mark.parametrize("last", STAGE_NAMES[:6])
def test_half_a_reading_is_none(last: str) -> None:
    assert key(stages=[last]).reading is None


@pytest.mark.parametrize("pages", [1, 3])
def test_base_is_the_reading_alone_with_its_stages_told_cached(pages: int) -> None:
    """Nothing of the former description is in it, on no page, and nothing is said to have taken time."""
    former = described(result(pages), Vlm(model="old@1", description="d", elements=[], unsupported_text=[]), 900.0)
    base = base_of(former, "deferred")
    for one in (base, *(base.pages or [])):
        assert one.vlm is None
        assert [stage.cached for stage in one.stages] == [True] * 7 + [False]
        assert (one.stages[7].status, one.stages[7].reason) == ("skipped", "deferred")
        assert sum(stage.ms for stage in one.stages) == 0
        assert (one.text, one.model_version) == ("read", "none")


def test_base_of_a_result_whose_description_failed_is_not_degraded() -> None:
    former = result(describe="degraded").model_copy(update={"degraded": True})
    assert base_of(former, "deferred").degraded is False


def test_description_of_a_base_is_a_whole_result() -> None:
    """Stage 8 is the only one that ran."""
    new = described(
        base_of(result(), "deferred"), Vlm(model="new@2", description="d", elements=[], unsupported_text=[]), 5
    )
    assert [stage.cached for stage in new.stages] == [True] * 7 + [False]
    assert (new.model_version, new.stages[7].status, new.degraded) == ("new@2", "ok", False)


def test_reading_without_a_description_is_finished() -> None:
    """It counts as many images as it has pages, and as computed by nobody."""
    done = finished_reading(result(pages=2), "not_configured")
    assert (done.pages, done.cached, done.degraded, done.cpu_s, done.gpu_s) == (2, True, False, 0, 0)
    assert json.loads(zlib.decompress(done.body))["stages"][7]["reason"] == "not_configured"


@pytest.mark.parametrize(("stage", "status"), [("read", "degraded"), ("assess", "failed"), ("structure", "failed")])
def test_result_is_read_where_all_before_the_description_is_sound(stage: str, status: str) -> None:
    assert is_read(result(describe="degraded").stages)
    assert not is_read(result(**{stage: status}).stages)


def test_reading_comes_from_this_machine_only_while_the_record_has_it(database, tmp_path) -> None:
    """A file's copy counts by its id alone; erased in PostgreSQL it is gone, and a newer one takes its place."""
    cache = VisionCache(tmp_path / "vlm_cache.db", max_bytes=10**8)

    def store(value: str) -> CachedReading:
        body = compress(result().model_copy(update={"text": value}).model_dump_json().encode())
        with database.transaction() as transaction:
            return CachedReading(insert_result(
                transaction, account_id="acc_1", key=key(), body=body, model_version="none", reusable=True,
                has_reading=True,
            ))  # fmt: skip

    first = store("first")
    assert load_reading(database, cache, key(), first).text == "first"
    assert cache.get(key().reading).result_id == first.result_id
    second = store("second")
    assert load_reading(database, cache, key(), second).text == "second"
    with database.transaction() as transaction:
        transaction.session.execute(text("DELETE FROM image_result"))
    assert load_reading(database, cache, key(), first) is None
    cache.close()


@pytest.mark.parametrize("body", [compress(b'{"image": {"sha256": "00"}}'), b"damaged"], ids=["form", "damage"])
def test_result_nobody_can_build_on_is_no_reading(database, tmp_path, body: bytes) -> None:
    """A damaged result, or one of another form, fails no image: it is read anew."""
    cache = VisionCache(tmp_path / "vlm_cache.db", max_bytes=10**8)
    with database.transaction() as transaction:
        stored = CachedReading(insert_result(
            transaction, account_id="acc_1", key=key(), body=body, model_version="none", reusable=True, has_reading=True
        ))  # fmt: skip
    assert load_reading(database, cache, key(), stored) is None
    cache.put(key().reading, stored.result_id, b"{}")
    assert load_reading(database, cache, key(), stored) is None
    cache.close()
