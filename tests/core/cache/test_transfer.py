"""The cache into a file and back: nothing is lost, nothing is done twice, and no damaged file changes anything."""

import gzip
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from arachne.cache import importing
from arachne.cache.exporting import Contents, export
from arachne.cache.importing import Imported, import_file, verify_file
from arachne.cache.portable import reading, writing
from arachne.errors import FileRejected, SetupError

NAMES = [str(n) for n in range(40)]


@pytest.mark.parametrize("name", ["cache.jsonl", "cache.jsonl.gz"])
def test_exported_emptied_imported_answers_the_same_bytes(cache, tmp_path: Path, original_file, name: str) -> None:
    """Every result, at both levels, with its age and hits; originals too."""
    ids = [cache.put(content, f"read {content}", age_s=60, local=True) for content in NAMES]
    for _ in range(3):
        cache.stores.cache.get(cache.key("7"))
    cache.stores.cache.flush()
    cache.stores.originals.take(original_file(("x", "{}", "m", 1, 1)))
    before, made, kept = cache.answers(*NAMES), cache.created_at("7"), list(cache.stores.originals.entries())
    assert export(cache.stores, tmp_path / name) == Contents(results=40, originals=1)
    cache.empty()
    assert cache.answers(*NAMES) == {}
    assert import_file(cache.stores, tmp_path / name) == Imported(imported=40, originals=1)
    assert (
        cache.answers(*NAMES) == before == {content: cache.result_of(content, f"read {content}") for content in NAMES}
    )
    assert cache.created_at("7") == made
    assert list(cache.stores.originals.entries()) == kept
    assert cache.stores.cache.get(cache.key("7")).result_json == before["7"]
    assert cache.stores.cache.hits_of([cache.key("7"), cache.key("8")]) == [3, 0]
    assert not set(cache.column("SELECT result_id FROM image_result")) & set(ids)


def test_export_of_an_import_is_the_same_file(cache, tmp_path: Path) -> None:
    """But for its header, which tells when it was made, and what that changes in the end's digest."""
    for content in NAMES:
        cache.put(content)
    export(cache.stores, tmp_path / "first")
    cache.empty()
    import_file(cache.stores, tmp_path / "first")
    export(cache.stores, tmp_path / "second")
    first, second = (sorted((tmp_path / name).read_bytes().splitlines()[1:-1]) for name in ("first", "second"))
    assert first == second


def test_export_cut_anywhere_is_refused_and_changes_nothing(cache, tmp_path: Path, original_file) -> None:
    """Plain and compressed, cut all along its length and in each of its last bytes."""
    cache.stores.originals.take(original_file(("x", "{}", "m", 1, 1)))
    for content in NAMES:
        cache.put(content, "in the file")
    export(cache.stores, tmp_path / "plain")
    cache.empty()
    cache.put("other", local=True)
    before = cache.state()
    plain = (tmp_path / "plain").read_bytes()
    for whole in (plain, gzip.compress(plain)):
        for length in [*range(0, len(whole), 211), *range(len(whole) - 20, len(whole))]:
            (tmp_path / "cut").write_bytes(whole[:length])
            with pytest.raises(FileRejected):
                import_file(cache.stores, tmp_path / "cut")
    assert cache.state() == before


def test_damage_in_the_last_entry_keeps_the_first_out(cache, tmp_path: Path) -> None:
    """All is verified before anything is written."""
    for content in NAMES:
        cache.put(content)
    export(cache.stores, tmp_path / "f")
    cache.empty()
    lines = (tmp_path / "f").read_bytes().splitlines(keepends=True)
    lines[-2] = lines[-2].replace(b"read", b"lied")
    (tmp_path / "f").write_bytes(b"".join(lines))
    with pytest.raises(FileRejected, match="line 41"):
        import_file(cache.stores, tmp_path / "f")
    assert cache.answers(*NAMES) == {}


@pytest.mark.parametrize(("there_s", "answer"), [(10, "there"), (30, "file"), (20, "there")])
def test_newer_result_answers(cache, tmp_path: Path, there_s: float, answer: str) -> None:
    """Whichever side it is on; of the same age the one that is there."""
    cache.put("a", "file", age_s=20)
    made = cache.created_at()
    export(cache.stores, tmp_path / "f")
    cache.empty()
    result_id = cache.put("a", "there", age_s=there_s)
    if there_s == 20:
        cache.column("UPDATE image_result SET created_at = :made", made=made)
    done = import_file(cache.stores, tmp_path / "f")
    assert cache.answers("a")["a"] == cache.result_of("a", answer)
    assert done == (Imported(imported=1) if answer == "file" else Imported(unchanged=1))
    assert result_id in cache.column("SELECT result_id FROM image_result")  # its job still shows it


def test_key_that_comes_twice_in_a_file_is_merged_too(cache, tmp_path: Path, monkeypatch) -> None:
    """In one batch or in two, in either order, the newer one answers."""
    lines = {}
    for value, age_s in (("older", 20), ("newer", 10)):
        cache.put("a", value, age_s=age_s)
        export(cache.stores, tmp_path / value)
        lines[value] = next(iter(read_entries(tmp_path / value)))
        cache.empty()
    for batch in (1, 100):
        monkeypatch.setattr(importing, "BATCH", batch)
        for order in (("older", "newer"), ("newer", "older")):
            write_entries(tmp_path / "f", [lines[value] for value in order])
            import_file(cache.stores, tmp_path / "f")
            assert cache.answers("a")["a"] == cache.result_of("a", "newer")
            cache.empty()


def test_import_again_does_nothing_again(cache, tmp_path: Path) -> None:
    for content in NAMES:
        cache.put(content)
    cache.put("partly", key=cache.key("partly"), reusable=False)
    export(cache.stores, tmp_path / "f")
    before = cache.column("SELECT count(*) FROM image_result")
    assert import_file(cache.stores, tmp_path / "f") == Imported(unchanged=41)
    assert cache.column("SELECT count(*) FROM image_result") == before


def test_interrupted_import_goes_on(cache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was written before stays, the rest comes with the next run, and nothing is there twice."""
    for content in NAMES:
        cache.put(content)
    export(cache.stores, tmp_path / "f")
    cache.empty()
    monkeypatch.setattr(importing, "BATCH", 7)
    size, seen = (tmp_path / "f").stat().st_size, 0

    def interrupt(number: int) -> None:
        nonlocal seen
        seen += number
        if seen > 1.5 * size:  # the first pass only verifies
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        import_file(cache.stores, tmp_path / "f", advance=interrupt)
    done = len(cache.answers(*NAMES))
    assert 0 < done < 40
    assert import_file(cache.stores, tmp_path / "f") == Imported(imported=40 - done, unchanged=done)
    assert cache.column("SELECT count(*) FROM image_result") == [40]


def test_readings_are_carried(cache, tmp_path: Path) -> None:
    """A result without a usable description still answers for its reading, and for nothing else."""
    cache.put("a", reusable=False)
    export(cache.stores, tmp_path / "f")
    cache.empty()
    assert import_file(cache.stores, tmp_path / "f") == Imported(imported=1)
    assert cache.answers("a") == {}
    assert cache.column("SELECT reading_key FROM image_result") == [cache.key("a").reading.digest]
    assert import_file(cache.stores, tmp_path / "f") == Imported(unchanged=1)


def test_what_answers_nobody_is_not_exported(cache, tmp_path: Path) -> None:
    """Bypassed and degraded results are their own jobs' alone."""
    cache.put("a", reusable=False, has_reading=False)
    assert export(cache.stores, tmp_path / "f") == Contents()
    assert verify_file(tmp_path / "f") == Contents()


def test_too_old_results_are_left_out(cache, tmp_path: Path) -> None:
    """An import doesn't bring back what is kept no longer."""
    cache.put("a", age_s=cache.stores.settings.result_retention_s + 60)
    cache.put("b")
    export(cache.stores, tmp_path / "f")
    cache.empty()
    assert import_file(cache.stores, tmp_path / "f") == Imported(imported=1, expired=1)


def test_results_of_unknown_accounts_are_left_out_or_given_to_one(cache, tmp_path: Path) -> None:
    """Another installation has other accounts; what all share is nobody's in particular."""
    cache.put("a")
    cache.put("b", key=cache.key("b", scope="shared"))
    export(cache.stores, tmp_path / "f")
    cache.empty()
    cache.column("UPDATE account SET account_id = 'acc_2'")
    assert import_file(cache.stores, tmp_path / "f") == Imported(imported=1, foreign=1)
    assert import_file(cache.stores, tmp_path / "f", "acc_2") == Imported(imported=1, unchanged=1)
    assert cache.answers("a", scope="acc_2") == {"a": cache.result_of("a")}
    assert cache.answers("b", scope="shared") == {"b": cache.result_of("b")}


def test_result_from_a_clock_ahead_is_as_old_as_its_import(cache, tmp_path: Path) -> None:
    """It doesn't win for ever."""
    cache.put("a", "file", age_s=-10_000)
    export(cache.stores, tmp_path / "f")
    cache.empty()
    import_file(cache.stores, tmp_path / "f")
    cache.put("a", "later")
    assert import_file(cache.stores, tmp_path / "f").imported == 1  # by its own account it is newer: nobody can tell
    assert cache.column("SELECT count(*) FROM image_result WHERE created_at > now() + interval '1 s'") == [0]


def test_damaged_results_are_left_out_of_an_export(cache, tmp_path: Path) -> None:
    """The file is whole all the same, and tells how many are missing."""
    cache.put("a")
    for damage in ("body = 'x'", "sha256 = 'x'", "cache_key = 'x'", "scope = ''"):
        result_id = cache.put(damage)
        cache.column(f"UPDATE image_result SET {damage} WHERE result_id = :it", it=result_id)
    assert export(cache.stores, tmp_path / "f") == Contents(results=1, left_out=4)
    assert verify_file(tmp_path / "f") == Contents(results=1)


def test_import_beside_a_live_service_loses_none_of_its_results(cache, tmp_path: Path) -> None:
    """While the file's older results come in, newer ones are finished under the same keys, and two import at once."""
    for content in NAMES:
        cache.put(content, "file", age_s=100)
    export(cache.stores, tmp_path / "f")
    cache.empty()
    with ThreadPoolExecutor(3) as pool:
        imports = [pool.submit(import_file, cache.stores, tmp_path / "f") for _ in range(2)]
        finishes = pool.map(lambda content: cache.put(content, "live"), NAMES)
        assert len(list(finishes)) == 40
        assert sum(one.result().imported for one in imports) <= 40
    assert cache.answers(*NAMES) == {content: cache.result_of(content, "live") for content in NAMES}


def test_counts_beyond_measure_make_no_file_that_is_refused(cache, tmp_path: Path) -> None:
    """Whatever this machine's file says of hits."""
    cache.put("a", local=True)
    (row,) = next(iter(cache.stores.cache.rows()))
    cache.stores.cache.take([row._replace(hits=2**40)])
    export(cache.stores, tmp_path / "f")
    assert [entry.hits for entry in read_entries(tmp_path / "f")] == [2**31 - 1]


def test_export_that_can_not_be_written_says_so(cache, tmp_path: Path) -> None:
    cache.put("a")
    with pytest.raises(SetupError, match="can't be written"):
        export(cache.stores, tmp_path / "missing" / "f")


def read_entries(path: Path):
    """The entries of a file."""
    with reading(path) as file:
        return list(file.entries())


def write_entries(path: Path, entries) -> None:
    """A file of these entries."""
    with writing(path) as writer:
        for entry in entries:
            writer.add(entry)
