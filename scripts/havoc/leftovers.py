"""What must not be left once everything has ended: leases, flights, parked images, locks, strange files."""

from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

from scripts.havoc.house import House

NOTHING = {
    "images that have not ended": "SELECT count(*) FROM image WHERE finished_at IS NULL",
    "jobs that have not ended": "SELECT count(*) FROM job WHERE finished_at IS NULL",
    "flights": "SELECT count(*) FROM flight",
    "deliveries to make": "SELECT count(*) FROM webhook_delivery WHERE state = 'pending'",
    "deliveries held": "SELECT count(*) FROM webhook_delivery WHERE claim_id IS NOT NULL OR lease_until IS NOT NULL",
    "deliveries given up": "SELECT count(*) FROM webhook_delivery WHERE state IN ('failed', 'cancelled')",
    "idempotency keys without a job": "SELECT count(*) FROM idempotency_key WHERE job_id IS NULL",
    "advisory locks": "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'",
    "transactions that stand still": "SELECT count(*) FROM pg_stat_activity WHERE state LIKE 'idle in transaction%' "
    "AND state_change < now() - interval '5 seconds'",
    "workers without a beat": "SELECT count(*) FROM worker WHERE beat_at < now() - interval '10 seconds'",
    "originals without a file's record": "SELECT count(*) FROM image WHERE state = 'completed' AND NOT EXISTS "
    "(SELECT 1 FROM blob WHERE blob.sha256 = image.sha256)",
}


def find_leftovers(house: House) -> dict[str, int]:
    """What is there and should not be, with its number."""
    found = {name: int(str(house.query(query)[0][0])) for name, query in NOTHING.items()}
    pids = {part.process.pid for part in house.of("gpu", "io") if part.process is not None}
    rows = {pid for (pid,) in house.query("SELECT pid FROM worker")}
    return {name: number for name, number in found.items() if number} | (
        {"workers that differ from those that run": len(rows ^ pids)} if rows != pids else {}
    )


def judge_files(house: House) -> Iterator[str]:
    """Faults of the store: files of no record, missing ones, and ones with other bytes than their name says."""
    kept = {digest for (digest,) in house.query("SELECT sha256 FROM blob")}
    used = {digest for (digest,) in house.query("SELECT sha256 FROM image WHERE state = 'completed'")}
    files = {path.name: path for path in _files(house.folder / "data" / "storage" / "originals")}
    for name in sorted(files.keys() - kept):
        yield f"the file {name} has no record"
    for digest in sorted(str(one) for one in used - files.keys()):
        yield f"the original {digest} is gone"
    for name in sorted(files.keys() & kept):
        if sha256(files[name].read_bytes()).hexdigest() != name:
            yield f"the file {name} has other bytes than its name says"


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in folder.rglob("*") if path.is_file())
