"""What became of everything sent, by the record's rows, the receivers' word and the API's: faults in plain words."""

import json
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import psycopg
from psycopg.rows import dict_row

from scripts.havoc.clients import JOBS, STATES, Client
from scripts.havoc.orders import TERMINAL, Item, Order
from scripts.havoc.outside import Arrival

Row = dict[str, Any]
JOB_ROWS = """
SELECT job_id, state, total, completed, failed, cancelled, cached, finished_at, labels FROM job ORDER BY job_id
"""
IMAGE_ROWS = """
SELECT image_id, job_id, index, state, sha256, cached, error_code, attempts, lost_leases, result_id
FROM image ORDER BY job_id, index
"""
COUNTED = ("completed", "failed", "cancelled")


@dataclass
class Record:
    """The rows as they stand at the end; read from the database itself."""

    jobs: dict[str, Row]
    images: dict[str, list[Row]]
    texts: dict[str, str]
    billed: Counter[str]
    messages: dict[str, Row]

    @classmethod
    def read(cls, url: str) -> "Record":
        """All of it."""
        with psycopg.connect(url, row_factory=dict_row) as link:
            images: dict[str, list[Row]] = defaultdict(list)
            for image in link.execute(IMAGE_ROWS):
                images[image["job_id"]].append(image)
            results = link.execute("SELECT result_id, body FROM image_result")
            entries = link.execute("SELECT image_id FROM usage_entry")
            messages = link.execute("SELECT message_id, job_id, type, body FROM webhook_message")
            return cls(
                jobs={job["job_id"]: job for job in link.execute(JOB_ROWS)},
                images=images,
                texts={row["result_id"]: json.loads(zlib.decompress(row["body"]))["text"] for row in results},
                billed=Counter(entry["image_id"] for entry in entries),
                messages={message["message_id"]: message for message in messages},
            )


def judge_jobs(orders: Sequence[Order], record: Record) -> Iterator[str]:
    """Faults of jobs: lost, doubled, not ended, ended wrongly, with wrong texts or counts, or billed wrongly."""
    known = {job_id for order in orders for job_id in order.job_ids}
    for job_id in record.jobs.keys() - known:
        yield f"job {job_id} was never told of: order {record.jobs[job_id]['labels'].get('order')}"
    for order in orders:
        if len(order.job_ids) != 1:
            yield f"order {order.number} became {len(order.job_ids)} jobs"
        elif order.job_id not in record.jobs:
            yield f"lost: job {order.job_id} of order {order.number}"
        else:
            yield from _judge_job(order, record)


def _judge_job(order: Order, record: Record) -> Iterator[str]:
    job, images = record.jobs[order.job_id], record.images[order.job_id]
    name = f"job {order.job_id}"
    states = Counter(image["state"] for image in images)
    if [image["index"] for image in images] != list(range(len(order.items))):
        yield f"{name} has other images than were sent"
        return
    if job["state"] != expected_state(states, len(images)) or job["finished_at"] is None:
        yield f"{name} is {job['state']}, its images {dict(states)}"
    if [job[one] for one in COUNTED] != [states[one] for one in COUNTED] or job["total"] != len(images):
        yield f"{name} counts {[job[one] for one in COUNTED]}, its images {dict(states)}"
    if order.seen is not None and order.seen["status"] != job["state"]:
        yield f"{name} was {order.seen['status']} and is {job['state']}"
    for item, image in zip(order.items, images, strict=True):
        fault = _fault_of(order, item, image, record)
        if fault:
            yield f"image {image['image_id']} of {name} {fault}"


def expected_state(states: Counter[str], total: int) -> str:
    """What the contract says of a job whose images ended like this."""
    if states["cancelled"]:
        return "cancelled"
    return "completed" if states["completed"] == total else "failed" if states["failed"] == total else "partial"


def _fault_of(order: Order, item: Item, image: Row, record: Record) -> str | None:
    billed = record.billed[image["image_id"]]
    if billed != (image["state"] == "completed"):
        return f"is {image['state']} and billed {billed} times"
    if image["state"] == "cancelled":
        return None if order.cancelled else "is cancelled, which nobody asked for"
    if image["state"] == "failed":
        right = image["error_code"] == item.error
        return None if right else f"failed with {image['error_code']} after {image['attempts']} attempts"
    if image["state"] != "completed" or item.error is not None:
        return f"is {image['state']}"
    if image["sha256"] != item.picture.digest:
        return "is another file than was sent"
    return None if item.picture.is_read_in(record.texts[image["result_id"]]) else "has a text that is not its own"


def judge_events(
    orders: Sequence[Order], record: Record, arrivals: Sequence[Arrival], standing: dict[int, tuple[str, list[str]]]
) -> Iterator[str]:
    """Faults of events: missing, strange, under two ids, with two bodies, not genuine, or doubled in the record.

    `standing` has the path and the filters of each client's endpoint.
    """
    terminal = Counter(row["job_id"] for row in record.messages.values() if row["type"] in TERMINAL)
    for job_id, job in record.jobs.items():
        told = [row["type"] for row in record.messages.values() if row["job_id"] == job_id and row["type"] in TERMINAL]
        if terminal[job_id] != 1 or told != [f"job.{job['state']}"]:
            yield f"job {job_id}, {job['state']}, has the terminal events {told}"
    wanted = set(_wanted(orders, record, standing))
    got: dict[tuple[str, str, str, str | None], set[str]] = defaultdict(set)
    for arrival in arrivals:
        if not arrival.genuine:
            yield f"event {arrival.message_id} came with a wrong signature"
        row = record.messages.get(arrival.message_id)
        if row is None or row["body"] != arrival.body:
            yield f"event {arrival.message_id} came with other bytes than it has"
        got[(arrival.path, *arrival.about)].add(arrival.message_id)
    for event in sorted(wanted - got.keys(), key=str):
        yield f"event {event} never came"
    for event in sorted({one for one in got.keys() - wanted if one[1] != "job.started"}, key=str):
        yield f"event {event} came unasked"
    for event, message_ids in got.items():
        if len(message_ids) != 1:
            yield f"event {event} came under {len(message_ids)} ids"


def _wanted(
    orders: Sequence[Order], record: Record, standing: dict[int, tuple[str, list[str]]]
) -> Iterator[tuple[str, str, str, str | None]]:
    for order in orders:
        if order.job_id not in record.jobs:
            continue
        receivers = [standing[order.client]] if order.client in standing else []
        if order.hook is not None:
            receivers.append((order.hook, list(order.filters)))
        for kind, image_id in _happened(order.job_id, record):
            for path, filters in receivers:
                if any(fnmatchcase(kind, one) for one in filters):
                    yield path, kind, order.job_id, image_id


def _happened(job_id: str, record: Record) -> Iterator[tuple[str, str | None]]:
    """Types of the events of a job, with the image for those about one; its start may or may not have been told."""
    yield f"job.{record.jobs[job_id]['state']}", None
    for image in record.images[job_id]:
        if image["state"] in {"completed", "failed"}:
            yield f"image.{image['state']}", image["image_id"]


def judge_answers(orders: Sequence[Order], record: Record, clients: Sequence[Client]) -> Iterator[str]:
    """Faults of what the API says of each job, of the feed of events and of the usage."""
    for order in orders:
        if order.job_id in record.jobs:
            job = clients[order.client].ask("GET", f"{JOBS}/{order.job_id}?include=results").json()
            yield from _judge_answer(order, job, record)
    for number, client in enumerate(clients):
        theirs = [order.job_id for order in orders if order.client == number and order.job_id in record.jobs]
        told = Counter(event["data"]["job_id"] for event in feed(client) if event["type"] in TERMINAL)
        if told != Counter(theirs):
            yield f"the feed of client {number} tells of {len(told)} jobs' ends, {sum(told.values())} times"
        billed = sum(record.billed[image["image_id"]] for job_id in theirs for image in record.images[job_id])
        usage = client.ask("GET", "/api/usage").json()["total"]["images"]
        if usage != billed:
            yield f"client {number} used {usage} images, and is billed {billed}"


def _judge_answer(order: Order, job: Row, record: Record) -> Iterator[str]:
    row, rows = record.jobs[order.job_id], record.images[order.job_id]
    if (job["status"], job["finished"]) != (row["state"], row["state"] in STATES):
        yield f"job {order.job_id} is {row['state']}, and the API says {job['status']}"
    if [job["progress"][one] for one in COUNTED] != [row[one] for one in COUNTED]:
        yield f"job {order.job_id} counts otherwise by the API: {job['progress']}"
    for item, image, kept in zip(order.items, job["images"], rows, strict=True):
        if image["status"] != kept["state"]:
            yield f"image {kept['image_id']} is {kept['state']}, and the API says {image['status']}"
        elif image["status"] == "completed" and not item.picture.is_read_in(image["result"]["text"]):
            yield f"image {kept['image_id']} has another text by the API"


def feed(client: Client) -> Iterator[Row]:
    """All events of the client's account, as it pulls them."""
    cursor = None
    while True:
        query = "/api/events?limit=200" + (f"&cursor={cursor}" if cursor else "")
        page = client.ask("GET", query).json()
        yield from page["data"]
        if not page["next_cursor"] or not page["data"]:
            return
        cursor = page["next_cursor"]
