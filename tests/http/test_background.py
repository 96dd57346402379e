"""What runs beside the requests goes on whatever happens, holds nobody up, and loses nothing when it is stopped."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from arachne.errors import Unavailable
from arachne.http import authentication, usage_log, waiting
from arachne.http.authentication import KeyRing
from arachne.http.usage_log import UsageLog
from arachne.http.waiting import JobWatcher, Sight, Stand

AWAY = Unavailable("away")


class FakeDatabase:
    """Answers with what `answers` give in turn, the last of them for ever; notes what it was asked."""

    def __init__(self, *answers: Callable[[], object]) -> None:
        self.answers, self.asked = list(answers), list[tuple[object, ...]]()

    async def run(self, _: object, *args: object) -> object:
        """The next answer."""
        self.asked.append(args)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        found = answer()
        return await found if asyncio.iscoroutine(found) else found


def fail(error: Exception) -> Callable[[], object]:
    def failing() -> object:
        raise error

    return failing


async def hang() -> None:
    await asyncio.Event().wait()


def row(number: int) -> dict[str, object]:
    return {"request_id": str(number), "at": datetime.now(UTC)}


async def stop(task: "asyncio.Task[None]") -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


@pytest.mark.parametrize("answer", [fail(AWAY), hang])
async def test_stopping_tries_once_to_write_what_is_left(
    answer: Callable[[], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(usage_log, "LAST_WRITE_S", 0.05)
    database = FakeDatabase(answer)
    log = UsageLog(database)  # type: ignore[arg-type]
    for number in range(3):
        log.add(row(number))
    await asyncio.wait_for(log.flush(), 10)
    assert len(database.asked) == 1
    assert log.dropped == 3


async def test_rows_taken_when_the_log_is_stopped_are_written_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(usage_log, "FLUSH_S", 0)
    database = FakeDatabase(hang, lambda: None)
    log = UsageLog(database)  # type: ignore[arg-type]
    log.add(row(1))
    task = asyncio.create_task(log.run())
    while not database.asked:  # noqa: ASYNC110  # a fake has no event for it
        await asyncio.sleep(0)
    await stop(task)
    await log.flush()
    assert [[one["request_id"] for one in args[0]] for args in database.asked] == [["1"], ["1"]]  # type: ignore[attr-defined]
    assert log.dropped == 0


async def test_rows_that_wait_for_company_are_written_at_the_end() -> None:
    database = FakeDatabase(lambda: None)
    log = UsageLog(database)  # type: ignore[arg-type]
    task = asyncio.create_task(log.run())
    log.add(row(1))
    for _ in range(5):
        await asyncio.sleep(0)  # the task takes its steps
    await stop(task)
    await log.flush()
    assert len(database.asked) == 1


async def test_the_usage_log_survives_what_nobody_foresaw(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(usage_log, "FLUSH_S", 0)
    database = FakeDatabase(fail(RuntimeError("odd")), lambda: None)
    log = UsageLog(database)  # type: ignore[arg-type]
    task = asyncio.create_task(log.run())
    for number in range(2):
        log.add(row(number))
        while len(database.asked) <= number:  # noqa: ASYNC110
            await asyncio.sleep(0)
    assert not task.done()
    assert log.dropped == 1
    await stop(task)


async def test_polls_are_served_after_what_nobody_foresaw(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "AGAIN_S", 0)
    sight = Sight(Stand("completed", 1, 0, 0, 0, 0))
    watcher = JobWatcher(FakeDatabase(fail(RuntimeError("odd")), lambda: {("job", None): sight}))  # type: ignore[arg-type]
    task = asyncio.create_task(watcher.run())
    await asyncio.wait_for(watcher.wait("job", lambda now: now.finished, 60), 10)
    await stop(task)


async def test_with_the_database_away_all_that_wait_for_a_key_fail_together() -> None:
    async def slow() -> object:
        await asyncio.sleep(0.05)
        raise AWAY

    database = FakeDatabase(slow)
    ring = KeyRing(database)  # type: ignore[arg-type]
    failed = await asyncio.gather(*(ring.keys_for(f"key{n}") for n in range(50)), return_exceptions=True)
    assert all(isinstance(one, Unavailable) for one in failed)
    assert len(database.asked) == 1
    with pytest.raises(Unavailable):
        await ring.keys_for("key")
    assert len(database.asked) == 2


async def test_known_keys_hold_while_the_database_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    key = {"kid": "known", "kty": "OKP", "crv": "Ed25519", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}
    database = FakeDatabase(lambda: [key], hang)
    ring = KeyRing(database)  # type: ignore[arg-type]
    assert "known" in await ring.keys_for("known")
    monkeypatch.setattr(authentication, "REFRESH_S", 0)
    refreshing = asyncio.create_task(ring.keys_for("known"))
    while len(database.asked) < 2:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    assert "known" in await asyncio.wait_for(ring.keys_for("known"), 10)
    await stop(refreshing)  # type: ignore[arg-type]
    database.answers = [fail(AWAY)]
    for _ in range(5):
        assert "known" in await ring.keys_for("known")
    assert len(database.asked) == 3
