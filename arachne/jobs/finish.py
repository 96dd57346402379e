"""The end of one image's claim, in one short transaction, by whoever still holds the claim and by nobody else."""

from typing import NamedTuple

from sqlalchemy import text

from arachne.bodies import Reading
from arachne.cache.shared import hold_result, insert_result
from arachne.database import Transaction
from arachne.errors import ImageError
from arachne.jobs.claim import Claimed
from arachne.jobs.closing import ImageEvent, Tally, count
from arachne.jobs.flights import end_flights
from arachne.ledger import charge
from arachne.settings import Settings

MAX_ATTEMPTS = 3

# The fence: whoever lost the claim finds no row and writes nothing. The row is locked before anything else.
_HOLD = text("""
SELECT 1 FROM image WHERE image_id = :image_id AND claim_id = :claim_id AND state = 'running' FOR UPDATE
""")
_COMPLETE = text("""
UPDATE image SET state = 'completed', finished_at = now(), result_id = :result_id, model_version = :model_version,
                 units = :units, cached = :cached, degraded = :degraded, attempts = attempts + :handed_over
WHERE image_id = :image_id
""")
_FAIL = text("""
UPDATE image SET state = 'failed', finished_at = now(), error_code = :code, error_message = :message,
                 error_stage = :stage, attempts = attempts + :handed_over
WHERE image_id = :image_id
""")
_GIVE_BACK = text("""
UPDATE image SET state = 'queued', claim_id = NULL, worker_id = NULL, started_at = NULL,
                 attempts = attempts + :handed_over
WHERE image_id = :image_id
""")


class Finish(NamedTuple):
    """Whether anything was written, and the result the image has now."""

    written: bool
    result_id: str = ""


LOST = Finish(written=False)


def finish_completed(transaction: Transaction, claimed: Claimed, reading: Reading, settings: Settings) -> Finish:
    """The image is `completed` with this result, charged once; degraded and bypassed results are not reusable.

    A result that lacks no more than its description keeps its reading reusable.
    """
    if not _hold(transaction, claimed):
        return LOST
    result_id = insert_result(
        transaction,
        account_id=claimed.account_id,
        key=claimed.key,
        body=reading.body,
        model_version=reading.model_version,
        reusable=is_reusable(claimed, reading),
        has_reading=has_reading(claimed, reading),
        replaces=claimed.options.cache == "refresh",
        units=reading.pages,
    )
    return _complete(transaction, claimed, result_id, reading, settings, cached=reading.cached)


def finish_cached(transaction: Transaction, claimed: Claimed, settings: Settings) -> Finish:
    """The image is `completed` with its cached result; back in the queue, if that was erased meanwhile."""
    assert claimed.hit is not None
    if not _hold(transaction, claimed):
        return LOST
    if not hold_result(transaction, claimed.hit.result_id):
        return _give_back(transaction, claimed, handed_over=0)
    reading = Reading(b"", claimed.hit.model_version, claimed.hit.degraded, claimed.hit.units)
    return _complete(transaction, claimed, claimed.hit.result_id, reading, settings, cached=True)


def finish_failed(
    transaction: Transaction, claimed: Claimed, error: ImageError, settings: Settings, *, handed_over: bool = True
) -> Finish:
    """The image is `failed` with this error. Failed images are not charged."""
    if not _hold(transaction, claimed):
        return LOST
    transaction.session.execute(
        _FAIL,
        {
            "image_id": claimed.image_id,
            "code": error.code,
            "message": error.message,
            "stage": error.stage,
            "handed_over": int(handed_over),
        },
    )
    end_flights(transaction, [claimed.image_id])
    tally = Tally()
    tally.fail(claimed.image_id)
    count(transaction, {claimed.job_id: tally}, settings)
    return Finish(written=True)


def finish_attempt(transaction: Transaction, claimed: Claimed, error: ImageError, settings: Settings) -> Finish:
    """The image's own subprocess died on it: queued for another attempt, or `failed` after the last one."""
    if claimed.attempts + 1 >= MAX_ATTEMPTS:
        return finish_failed(transaction, claimed, error, settings)
    return give_back(transaction, claimed, handed_over=True)


def give_back(transaction: Transaction, claimed: Claimed, *, handed_over: bool = False) -> Finish:
    """The image is queued again; only a hand-over to a subprocess counts as an attempt."""
    return _give_back(transaction, claimed, handed_over=int(handed_over)) if _hold(transaction, claimed) else LOST


def is_reusable(claimed: Claimed, reading: Reading) -> bool:
    """Whether the cache may answer with this result: complete, not bypassed, and of the model the key names."""
    same_model = reading.proven and reading.model_version == claimed.key.model_version
    return not reading.degraded and claimed.options.cache != "bypass" and same_model


def has_reading(claimed: Claimed, reading: Reading) -> bool:
    """Whether other descriptions may build on this result's stages 1 to 7: complete, and not bypassed."""
    complete = reading.is_read or not reading.degraded
    return complete and claimed.options.cache != "bypass" and claimed.key.reading is not None


def _hold(transaction: Transaction, claimed: Claimed) -> bool:
    fence = {"image_id": claimed.image_id, "claim_id": claimed.claim_id}
    return transaction.session.scalar(_HOLD, fence) is not None


def _give_back(transaction: Transaction, claimed: Claimed, *, handed_over: int) -> Finish:
    end_flights(transaction, [claimed.image_id])
    transaction.session.execute(_GIVE_BACK, {"image_id": claimed.image_id, "handed_over": handed_over})
    return Finish(written=True)


def _complete(
    transaction: Transaction, claimed: Claimed, result_id: str, reading: Reading, settings: Settings, *, cached: bool
) -> Finish:
    transaction.session.execute(
        _COMPLETE,
        {
            "image_id": claimed.image_id,
            "result_id": result_id,
            "model_version": reading.model_version,
            "units": reading.pages,
            "cached": cached,
            "degraded": reading.degraded,
            "handed_over": int(not cached),
        },
    )
    end_flights(transaction, [claimed.image_id])
    charge(transaction, [claimed.image_id], cpu_s=reading.cpu_s, gpu_s=reading.gpu_s)
    told: list[tuple[ImageEvent, str]] = [("image.completed", claimed.image_id)]
    tally = Tally(completed=1, cached=int(cached), degraded=int(reading.degraded), events=told)
    count(transaction, {claimed.job_id: tally}, settings)
    return Finish(written=True, result_id=result_id)
