"""`arachne cache import` and `export` of many entries: entries a second, CPU time, and peak memory of the command.

Each command runs in a process of its own on an embedded PostgreSQL; what comes out is compared with what went in. The
last line gives each figure of the largest run over that of the smallest: memory is bounded where it is near 1.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path

from arachne import migrations
from arachne.cache.entries import ResultEntry
from arachne.cache.portable import reading, writing
from arachne.database import Database
from arachne.embedded import servers
from arachne.schemas.tables import Account

ACCOUNT = "acc_bench"
MIB = 1024 * 1024


def main() -> None:
    """Print a line of JSON for each number of entries, and one of ratios."""
    parser = argparse.ArgumentParser(prog="scripts/bench/cache", description=__doc__)
    parser.add_argument("entries", type=int, nargs="*", default=[10_000, 100_000], help="numbers of entries")
    parser.add_argument("--bytes", type=int, default=4000, help="bytes of each result's JSON")
    parser.add_argument("--gzip", action="store_true", help="compress the file")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="arachne-cache-") as name:
        folder = Path(name)
        folder.chmod(0o755)  # the server may run as another user
        with servers(folder / "servers") as running:
            migrations.upgrade(running.database_url)
            add_account(running.database_url)
            env = os.environ | {"ARACHNE_DATABASE_URL": running.database_url, "ARACHNE_DATA_DIR": str(folder / "data")}
            runs = [measure(number, given.bytes, folder, env, packed=given.gzip) for number in given.entries]
    if len(runs) > 1:
        first, last = runs[0], runs[-1]
        print(json.dumps({f"{name}_ratio": round(last[name] / first[name], 2) for name in last}))


def measure(number: int, result_bytes: int, folder: Path, env: dict[str, str], *, packed: bool) -> dict[str, float]:
    """Import, export and compare so many entries; the cache is empty before and after."""
    given, got = (folder / f"{name}.jsonl{'.gz' if packed else ''}" for name in ("given", "got"))
    write_file(given, number, result_bytes)
    found: dict[str, float] = {"entries": number, "file_mib": round(given.stat().st_size / MIB, 1)}
    found |= run("import", given, number, env)
    found |= run("export", got, number, env)
    if digests(given) != digests(got):
        raise SystemExit("what came out is not what went in")
    subprocess.run([*COMMAND, "prune", "--older-than", "0"], env=env, check=True, capture_output=True)
    print(json.dumps(found), flush=True)
    return found


# What a process peaked at is asked of itself: the system's account of children begins with their parent's memory.
PROGRAM = """
import atexit, re, sys
from pathlib import Path
from arachne.cli import main
tell = lambda: sys.stderr.write(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])
atexit.register(tell)
main()
"""
COMMAND = (sys.executable, "-P", "-c", PROGRAM, "cache")


def run(what: str, file: Path, number: int, env: dict[str, str]) -> dict[str, float]:
    """Rates and memory of one command."""
    began, before = time.perf_counter(), os.times()
    done = subprocess.run([*COMMAND, what, str(file), "--json"], env=env, capture_output=True, text=True, check=False)
    took, after = time.perf_counter() - began, os.times()
    if done.returncode or max(json.loads(done.stdout).values()) != number:
        raise SystemExit(f"{what}: exit code {done.returncode}, {done.stdout}, {done.stderr}")
    cpu_s = after.children_user + after.children_system - before.children_user - before.children_system
    return {
        f"{what}_per_s": round(number / took),
        f"{what}_cpu_ms": round(1000 * cpu_s / number, 3),
        f"{what}_peak_mib": round(int(done.stderr) / 1024, 1),
    }


def write_file(path: Path, number: int, result_bytes: int) -> None:
    """A file of so many results, each of its own image."""
    made_at = datetime.now(UTC)
    with writing(path) as writer:
        for n in range(number):
            digest = sha256(str(n).encode()).hexdigest()
            text = " ".join(sha256(f"{n} {word}".encode()).hexdigest()[:8] for word in range(result_bytes // 18))
            filler = "word " * (result_bytes // 10)
            writer.add(
                ResultEntry(
                    scope=ACCOUNT, sha256=digest, model_version="none", pipeline_version="bench", options_hash="bench",
                    reading_hash=None, complete=True, has_reading=False, account_id=ACCOUNT, units=1,
                    created_at=made_at, hits=0,
                    result=json.dumps({"image": {"sha256": digest}, "text": text, "markdown": filler}),
                )
            )  # fmt: skip


def digests(path: Path) -> set[bytes]:
    """What tells the file's entries apart, in no order."""
    with reading(path) as file:
        return {sha256(entry.model_dump_json().encode()).digest() for entry in file.entries()}


def add_account(database_url: str) -> None:
    """The account all results belong to."""
    database = Database(database_url, pool_size=1)
    with database.transaction() as transaction:
        transaction.session.add(Account(account_id=ACCOUNT, name="bench"))
    database.close()


if __name__ == "__main__":
    main()
