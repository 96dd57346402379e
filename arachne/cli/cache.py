"""`arachne cache …`: the vision cache looked at, carried, cut down and checked."""

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from arachne.cli.options import DataDir, Json, load
from arachne.cli.output import print_record, say
from arachne.errors import SetupError
from arachne.settings import Settings

if TYPE_CHECKING:
    from arachne.cache.importing import Imported

app = typer.Typer(
    help="The vision cache: look at it, carry it, cut it down, check it.",
    epilog="Exit codes: 0 done, 1 a file was rejected or something is damaged, 2 wrong usage, "
    "3 nothing runs here or a file can't be written, 130 interrupted. Nothing is half-done: "
    "a rejected file changes nothing, an interrupted import goes on when it is run again.",
    no_args_is_help=True,
)
File = Annotated[Path, typer.Argument(help="The cache file; compressed where its name ends in .gz.")]


@app.command()
def stats(json: Json = False, data_dir: DataDir = None) -> None:
    """What the cache holds: this machine's file, PostgreSQL, and rows kept from original-format files."""
    from arachne.cache.audit import file_stats, shared_stats
    from arachne.cache.local import open_cache
    from arachne.cache.originals import open_originals
    from arachne.database import Database

    settings = load(data_dir)
    cache, connected = open_cache(settings), _connected(settings)
    try:
        record: dict[str, object] = {"file": file_stats(cache, settings), "shared": None}
    finally:
        cache.close()
    if connected is not None and connected.database_url is not None:
        database = Database(connected.database_url, pool_size=1)
        try:
            record["shared"] = asdict(shared_stats(database))
        finally:
            database.close()
    by_model = open_originals(settings).by_model()
    record["originals"] = {"entries": sum(by_model.values()), "by_model": by_model}
    _print(record, as_json=json)


@app.command()
def export(
    file: File,
    originals: Annotated[bool, typer.Option("--originals", help="Only rows kept from original-format files.")] = False,
    json: Json = False,
    data_dir: DataDir = None,
) -> None:
    """Write the whole cache into one portable file. It takes its name when it is whole."""
    from arachne.cache import exporting
    from arachne.cache.originals import open_originals
    from arachne.cache.stores import open_stores

    settings = load(data_dir)
    if originals:
        kept = open_originals(settings)
        with _progress("entries", sum(kept.by_model().values())) as advance:
            done = exporting.export_originals(kept, file, advance)
    else:
        with (
            open_stores(_attached(settings)) as stores,
            _progress("entries", exporting.count_entries(stores)) as advance,
        ):
            done = exporting.export(stores, file, advance)
    _print(asdict(done), as_json=json)
    if done.left_out:
        say(f"{done.left_out} results are damaged and were left out; `arachne cache verify` names them.")


@app.command("import")
def import_(
    file: Annotated[Path, typer.Argument(help="A file of `arachne cache export`, or an original-format vlm_cache.db.")],
    account: Annotated[
        str | None, typer.Option(help="Name of the account that single accounts' results go to.")
    ] = None,
    json: Json = False,
    data_dir: DataDir = None,
) -> None:
    """Merge a file into the cache. Of two results for one key the newer answers; a damaged file changes nothing."""
    from arachne.cache import originals

    settings = load(data_dir)
    if file.is_file() and originals.is_database(file):
        taken, known = originals.open_originals(settings).take(file)
        done = {"originals": taken, "originals_unchanged": known}
    else:
        done = asdict(_import(settings, file, account))
    _print(done, as_json=json)
    if done.get("foreign"):
        say("Results of accounts that are unknown here were left out; --account NAME gives them to one.")
    if done.get("expired"):
        say("Results older than ARACHNE_RESULT_RETENTION_S were left out.")


@app.command()
def prune(
    older_than: Annotated[
        float | None, typer.Option(min=0, help="Also all results of that many seconds; 0 empties the cache.")
    ] = None,
    originals: Annotated[bool, typer.Option("--originals", help="Also rows kept from original-format files.")] = False,
    json: Json = False,
    data_dir: DataDir = None,
) -> None:
    """Drop what is beyond the cache's age and size, or was erased. Results of jobs stay with their jobs."""
    from arachne.cache.audit import prune
    from arachne.cache.stores import open_stores

    with open_stores(_attached(load(data_dir))) as stores:
        done = prune(stores, older_than, with_originals=originals)
    _print(asdict(done), as_json=json)


@app.command()
def verify(
    file: Annotated[Path | None, typer.Argument(help="A cache file to check instead of the cache.")] = None,
    json: Json = False,
    data_dir: DataDir = None,
) -> None:
    """Check every entry of the cache, or of a file. Exits with 1 if anything is wrong."""
    from arachne.cache.audit import verify_stores
    from arachne.cache.exporting import count_entries
    from arachne.cache.importing import verify_file
    from arachne.cache.stores import open_stores

    if file is not None:
        with _progress("bytes", _size(file)) as advance:
            contents = verify_file(file, advance)
        _print({"results": contents.results, "originals": contents.originals}, as_json=json)
        return
    with open_stores(_attached(load(data_dir))) as stores, _progress("entries", count_entries(stores)) as advance:
        report = verify_stores(stores, advance)
    _print(asdict(report), as_json=json)
    for fault in () if json else report.faults:
        say(fault)
    if report.faults:
        raise typer.Exit(1)


def _import(settings: Settings, file: Path, account: str | None) -> "Imported":
    from arachne.cache.importing import import_file, import_originals, verify_file
    from arachne.cache.originals import open_originals
    from arachne.cache.stores import open_stores

    with _progress("bytes", 2 * _size(file)) as advance:
        if _connected(settings) is None and verify_file(file).results == 0:
            return import_originals(open_originals(settings), file, advance)
        with open_stores(_attached(settings)) as stores:
            return import_file(stores, file, account and _account_id(stores.settings, account), advance)


def _account_id(settings: Settings, name: str) -> str:
    from arachne.accounts import find_account
    from arachne.cli.connection import session_on

    with session_on(settings) as session:
        return find_account(session, name).account_id


def _attached(settings: Settings) -> Settings:
    from arachne.embedded.instance import attach

    return attach(settings, needs=["database_url"])


def _connected(settings: Settings) -> Settings | None:
    """The settings with the database's URL, None where nothing runs."""
    try:
        return _attached(settings)
    except SetupError:
        return None


def _size(file: Path) -> int:
    return file.stat().st_size if file.is_file() else 0


@contextmanager
def _progress(what: str, total: int) -> Iterator[Callable[[int], object]]:
    """Shows on a terminal how much of `total` is done, as it is told."""
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as bar:
        task = bar.add_task(what, total=total)
        yield lambda number: bar.advance(task, number)


def _print(record: Mapping[str, object], *, as_json: bool) -> None:
    """The record; for people its inner ones are told line by line."""
    flat: dict[str, object] = {}
    for name, value in record.items():
        if isinstance(value, dict) and not as_json:
            flat |= {f"{name} {inner}": "-" if one is None else one for inner, one in value.items()}
        elif isinstance(value, list) and not as_json:
            flat[name] = len(value)
        else:
            flat[name] = value if as_json or value is not None else "-"
    print_record(flat, as_json=as_json)
