"""What is read, erased, and looked for everywhere."""

from hashlib import sha256

from arachne.jobs.erasure import erase_job, request_erasure
from arachne.storage import Storage
from tests.core.jobs.conftest import Queue

TEXT = "the words of this very picture"
URL = "https://pictures.example.com/a.png?token=hush"


def digest_of(content: str) -> str:
    """The SHA-256 in hex."""
    return sha256(content.encode()).hexdigest()


def finish(queue: Queue, *contents: str, account: str = "somebody") -> str:
    """Id of a job that is read, with names, a URL and metadata."""
    job_id = queue.submit(*contents, account=account)
    queue.column("UPDATE image SET format = 'png', name = 'tax.png', source_url = :url WHERE job_id = :it",
                 it=job_id, url=URL)  # fmt: skip
    queue.column("""UPDATE job SET labels = '{"case": "divorce"}' WHERE job_id = :it""", it=job_id)
    for image in queue.claim(queue.worker(), len(contents)):
        queue.complete(image, value=f"{TEXT}: {image.sha256}")
    return str(job_id)


def erase(queue: Queue, storage: Storage, job_id: str, account: str = "somebody") -> None:
    """The job is erased, as its account asks."""
    queue.database.run(request_erasure, queue.account(account), job_id)
    erase_job(queue.database, storage, queue.settings, job_id)


def everything(queue: Queue) -> str:
    """All rows of all tables as text, bodies of events as they read."""
    tables = queue.column(
        "SELECT relname FROM pg_class WHERE relkind IN ('r', 'p') AND relnamespace = 'public'::regnamespace "
        "AND NOT relispartition"
    )
    rows: list[str] = []
    for table in tables:
        rows += queue.column(f"SELECT t::text FROM {table} t")
    rows += [str(bytes(body)) for body in queue.column("SELECT body FROM webhook_message")]
    return "\n".join(rows)
