"""A new prompt or model misses the cache but keeps the reading; what is not a complete reading is nobody's base."""

import pytest

from arachne.jobs.finish import finish_completed


def claim_one(queue, **options: object):
    """The one image of a new job with these options."""
    queue.submit("same", options=options)
    (image,) = queue.claim(queue.worker())
    return image


def test_new_prompt_finds_the_reading_and_not_the_result(queue) -> None:
    """The description is asked for anew, on top of what was read."""
    first = claim_one(queue, prompt="one")
    assert (first.hit, first.reading) == (None, None)
    result_id = queue.complete(first).result_id
    second = claim_one(queue, prompt="two")
    assert second.hit is None
    assert second.reading.result_id == result_id


def test_new_model_finds_the_reading(queue) -> None:
    """Another model, or another digest under the same name, describes the same reading."""
    first = claim_one(queue)
    result_id = queue.complete(first).result_id
    second = claim_one(queue, model="small@000000000001")
    assert (second.hit, second.reading.result_id) == (None, result_id)


def test_whole_hit_asks_for_no_reading(queue) -> None:
    """What is answered already needs no base."""
    queue.complete(claim_one(queue))
    again = claim_one(queue)
    assert (again.hit is not None, again.reading) == (True, None)


@pytest.mark.parametrize(
    ("options", "account"),
    [({"languages": ["tha"]}, "somebody"), ({"profile": "slip"}, "somebody"), ({"prompt": "two"}, "else")],
)
def test_other_readings_are_not_taken_for_it(queue, options, account: str) -> None:
    """Other languages, another profile or another account are another reading."""
    queue.complete(claim_one(queue))
    queue.submit("same", options=options, account=account)
    (image,) = queue.claim(queue.worker())
    assert (image.hit, image.reading) == (None, None)


@pytest.mark.parametrize("is_read", [True, False])
def test_degraded_result_is_a_base_only_if_it_was_read_completely(queue, make_reading, is_read: bool) -> None:
    """A description that failed leaves a sound reading, never a result for others; a poor reading leaves neither."""
    first = claim_one(queue)
    done = queue.database.run(finish_completed, first, make_reading(degraded=True, is_read=is_read), queue.settings)
    again = claim_one(queue)
    assert again.hit is None
    assert (again.reading and again.reading.result_id) == (done.result_id if is_read else None)


@pytest.mark.parametrize("mode", ["refresh", "bypass"])
def test_reading_is_used_on_request_only(queue, mode: str) -> None:
    """`refresh` reads anew and `bypass` looks at nothing."""
    queue.complete(claim_one(queue))
    assert claim_one(queue, prompt="two", cache=mode).reading is None


def test_bypass_leaves_no_reading(queue) -> None:
    """What bypassed the cache is no base for anybody."""
    queue.complete(claim_one(queue, cache="bypass"))
    assert claim_one(queue, prompt="two").reading is None


def test_refreshed_reading_takes_the_place_of_the_older_ones(queue) -> None:
    """Also when the refreshed one is erased, the replaced one never comes back."""
    queue.complete(claim_one(queue))
    newer = queue.complete(claim_one(queue, prompt="two", cache="refresh")).result_id
    assert claim_one(queue, prompt="three").reading.result_id == newer
    assert queue.column("SELECT result_id FROM image_result WHERE reading_key IS NOT NULL") == [newer]


def test_erased_result_takes_its_reading_with_it(queue) -> None:
    """There is no copy left behind under another key."""
    queue.complete(claim_one(queue))
    queue.column("UPDATE image SET result_id = NULL")
    queue.column("DELETE FROM image_result")
    assert claim_one(queue, prompt="two").reading is None


def test_reading_alone_costs_what_a_cached_image_costs(queue, make_reading) -> None:
    """Where nothing had to be computed the image counts as cached, in the job and in the ledger."""
    image = claim_one(queue)
    queue.database.run(finish_completed, image, make_reading(cached=True), queue.settings)
    assert queue.column("SELECT cached FROM usage_entry") == [True]
    assert queue.job(image.job_id).cached == 1
    assert queue.images(image.job_id)[0].attempts == 0
