"""`arachne cache`: data alone on stdout, exit codes that mean something, and a round trip as an operator does it."""

import json
import sqlite3
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import pytest
from sqlalchemy import text

from arachne.bodies import compress
from arachne.cache import CacheKey, insert_result, load_body, lookup
from arachne.database import Database
from arachne.schemas.tables import Account

Run = Callable[..., tuple[int, str, str]]
DIGEST = sha256(b"image").hexdigest()
KEY = CacheKey("acc_1", DIGEST, "small@1", "p1", "o1", reading_hash="r1")
RESULT = json.dumps({"image": {"sha256": DIGEST}, "text": "สวัสดี"}).encode()
ORIGINAL = ("aa" * 32, '{"text": "old"}', "qwen2.5vl:7b", "2025-01-31 12:00:00", 7)


@pytest.fixture
def filled(database: Database, connected: None) -> Database:
    """A database with one cached result."""
    with database.transaction() as transaction:
        transaction.session.add(Account(account_id="acc_1", name="acme"))
        insert_result(
            transaction, account_id="acc_1", key=KEY, body=compress(RESULT), model_version="small@1", reusable=True,
            has_reading=True,
        )  # fmt: skip
    return database


@pytest.fixture
def original(tmp_path: Path) -> Path:
    """A file of the former system."""
    path = tmp_path / "old.db"
    connection = sqlite3.connect(path)
    with connection:
        connection.execute("CREATE TABLE vision_cache (sha256, result_json, model_version, created_at, hits)")
        connection.execute("INSERT INTO vision_cache VALUES (?, ?, ?, ?, ?)", ORIGINAL)
    connection.close()
    return path


def answer(database: Database, key: CacheKey = KEY) -> bytes | None:
    with database.transaction() as transaction:
        hit = lookup(transaction, [key.digest]).get(key.digest)
        return None if hit is None else load_body(transaction, hit.result_id)


def test_round_trip(run: Run, filled: Database, tmp_path: Path) -> None:
    """Export, empty, import: the same bytes answer, and stdout holds nothing but one JSON document each time."""
    code, out, err = run("cache", "export", "cache.jsonl.gz", "--json")
    assert (code, json.loads(out), err) == (0, {"results": 1, "originals": 0, "left_out": 0}, "")
    assert json.loads(run("cache", "verify", "cache.jsonl.gz", "--json")[1]) == {"results": 1, "originals": 0}
    code, out, _ = run("cache", "prune", "--older-than", "0", "--json")
    assert (code, json.loads(out)["shared"], answer(filled)) == (0, 1, None)
    code, out, err = run("cache", "import", "cache.jsonl.gz", "--json")
    assert (code, json.loads(out)["imported"], err, answer(filled)) == (0, 1, "", RESULT)
    told = json.loads(run("cache", "stats", "--json")[1])
    assert (told["shared"]["results"], told["file"]["entries"], told["originals"]["entries"]) == (1, 1, 0)
    code, out, _ = run("cache", "verify", "--json")
    assert (code, json.loads(out)["local"], json.loads(out)["faults"]) == (0, 1, [])


@pytest.mark.usefixtures("filled")
def test_people_are_told_line_by_line(run: Run) -> None:
    code, out, _ = run("cache", "stats")
    assert code == 0
    assert "shared results: 1\n" in out
    assert "file oldest at: -\n" in out


def test_original_file_is_kept_and_never_answers(run: Run, filled: Database, original: Path, tmp_path: Path) -> None:
    """Listed, exported and imported again without loss; whoever sends that image has it read."""
    code, out, _ = run("cache", "import", str(original), "--json")
    assert (code, json.loads(out)) == (0, {"originals": 1, "originals_unchanged": 0})
    told = json.loads(run("cache", "stats", "--json")[1])
    assert told["originals"] == {"entries": 1, "by_model": {"qwen2.5vl:7b": 1}}
    with filled.transaction() as transaction:
        found = transaction.session.execute(text("SELECT 1 FROM image_result WHERE sha256 = :it"), {"it": ORIGINAL[0]})
        assert found.all() == []
    run("cache", "export", "carried")
    run("cache", "prune", "--originals")
    assert json.loads(run("cache", "stats", "--json")[1])["originals"]["entries"] == 0
    run("cache", "import", "carried")
    connection = sqlite3.connect(tmp_path / "data" / "cache" / "originals.db")
    columns = "sha256, result_json, model_version, created_at, hits"
    assert connection.execute(f"SELECT {columns} FROM vision_cache").fetchall() == [ORIGINAL]
    connection.close()


def test_originals_need_no_service(run: Run, original: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are taken, listed and carried with nothing running; results are not, since only the record knows them."""
    monkeypatch.setenv("ARACHNE_DATA_DIR", "elsewhere")
    assert run("cache", "import", str(original))[0] == 0
    assert run("cache", "export", "f", "--originals")[0] == 0
    assert json.loads(run("cache", "import", "f", "--json")[1])["originals_unchanged"] == 1
    told = json.loads(run("cache", "stats", "--json")[1])
    assert (told["shared"], told["originals"]["entries"]) == (None, 1)
    code, out, err = run("cache", "export", "g")
    assert (code, out, "Nothing runs" in err) == (3, "", True)


def test_rejected_file_exits_with_1_and_says_where(run: Run, filled: Database, tmp_path: Path) -> None:
    run("cache", "export", "f")
    whole = (tmp_path / "f").read_bytes()
    (tmp_path / "f").write_bytes(whole[:-1])
    run("cache", "prune", "--older-than", "0")
    for words in (("import", "f"), ("verify", "f"), ("import", "missing"), ("import", str(tmp_path))):
        code, out, err = run("cache", *words)
        assert (code, out) == (1, "")
        assert err.startswith("arachne: ")
    assert answer(filled) is None


@pytest.mark.usefixtures("filled")
def test_damage_in_the_cache_exits_with_1_and_names_it(run: Run, filled: Database) -> None:
    with filled.transaction() as transaction:
        transaction.session.execute(text("UPDATE image_result SET options_hash = 'other'"))
    code, out, err = run("cache", "verify")
    assert (code, "faults: 1" in out, "res_" in err) == (1, True, True)
    code, out, err = run("cache", "export", "f", "--json")
    assert (code, json.loads(out)["left_out"], "damaged" in err) == (0, 1, True)


@pytest.mark.usefixtures("filled")
def test_results_can_be_given_to_an_account(run: Run, filled: Database) -> None:
    """Of another installation the accounts are unknown; by name or id one takes their results."""
    run("cache", "export", "f")
    with filled.transaction() as transaction:
        transaction.session.execute(text("DELETE FROM image_result"))
        transaction.session.execute(text("UPDATE account SET account_id = 'acc_2'"))
    code, out, err = run("cache", "import", "f", "--json")
    assert (code, json.loads(out)["foreign"], "--account" in err) == (0, 1, True)
    assert json.loads(run("cache", "import", "f", "--account", "acme", "--json")[1])["imported"] == 1
    assert answer(filled, CacheKey("acc_2", *KEY.parts[1:])) == RESULT
    assert run("cache", "import", "f", "--account", "nobody")[0] == 1


@pytest.mark.parametrize("words", [("cache",), ("cache", "export"), ("cache", "prune", "--older-than", "-1")])
def test_wrong_usage_exits_with_2(run: Run, words: tuple[str, ...]) -> None:
    assert run(*words)[0] == 2
