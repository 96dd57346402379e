"""`arachne extract`: images read by a service, or on this machine, and what they say printed or written."""

import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from arachne.cli.options import DataDir, folder, load, validate
from arachne.schemas.options import CacheMode, DetailLevel, Options, Profile
from arachne.schemas.queries import Format
from arachne.schemas.submission import SubmissionTerms

if TYPE_CHECKING:
    from collections.abc import Callable

    from arachne.cli.extract_inputs import Input
    from arachne.cli.extract_journal import Journal
    from arachne.cli.extract_output import Sink

_HELP = (
    "Read images: files, folders (searched for images), patterns such as 'shots/**/*.png', https URLs, or - for stdin."
    "\n\n"
    "They are sent to the service at ARACHNE_URL, http://127.0.0.1:8000 when unset, signed in to with ARACHNE_TOKEN, "
    "or with ARACHNE_CLIENT_ID and ARACHNE_CLIENT_SECRET. With --local they are read here, without a service."
    "\n\n"
    "Prints what was read, in the order given: one image alone as it is, several, a folder's or a list's as JSON lines "
    "with the member `file`, or as texts parted by form feeds. With --out writes DIR/<name>.<format>, each as "
    "soon as it is read."
    "\n\n"
    "Interrupted, the service keeps reading, and within 24 hours the same command goes on: it sends nothing twice, "
    "keeps files already written, and sends anew only what failed. --anew starts from the beginning."
)
_EPILOG = (
    "Examples:\n\n"
    "arachne extract shot.png --format md\n\n"
    "arachne extract shots/ 'scans/*.tiff' --frames all --format pdf --out read\n\n"
    "grim - | arachne extract - --format txt\n\n"
    "find . -name '*.png' -mtime -1 | arachne extract --from-file - --detail-level fast > read.jsonl\n\n"
    "Exit codes: 0 all read, 1 some could not be (which and why on stderr; the others are read all the same), 2 wrong "
    "usage, 3 set-up needs mending: no credentials, or refused ones, or no service there, 130 interrupted."
)

Files = Annotated[
    list[str] | None,
    typer.Argument(metavar="FILE|URL…", help="Files, folders, patterns, URLs, or - for stdin.", show_default=False),
]
FromFile = Annotated[
    str | None, typer.Option("--from-file", metavar="LIST", help="A file with one of them a line; - for stdin.")
]
Local = Annotated[bool, typer.Option("--local", help="Read in this machine's own processes; no service is needed.")]
As = Annotated[Format, typer.Option("--format", help="json, md, txt, hocr, pdf (searchable) or png (boxes drawn).")]
Out = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR", parser=folder, help="Folder to write DIR/<name>.<format> to; made where it is missing."
    ),
]
Overwrite = Annotated[
    bool, typer.Option("--overwrite", help="Replace files in DIR, never images that are read; else names get a -2.")
]
Detail = Annotated[DetailLevel, typer.Option(help="fast, standard or detailed.")]
Languages = Annotated[
    list[str] | None, typer.Option(help="Such as eng+tha, or auto; the service's own when not given.")
]
Stages = Annotated[list[str] | None, typer.Option(help="Only these stages, such as read,structure, and those before.")]
As_Profile = Annotated[Profile, typer.Option("--profile", help="screenshot, document or slip.")]
Frames = Annotated[Literal["first", "all"], typer.Option(help="Pages of a TIFF, frames of an animation: first or all.")]
Model = Annotated[str | None, typer.Option(help="The model that describes; auto when not given.")]
Prompt = Annotated[str | None, typer.Option(help="Added to what the model is asked.")]
Cache = Annotated[
    CacheMode | None, typer.Option(help="use, refresh (read anew and keep that) or bypass the service's cache.")
]
Metadata = Annotated[list[str] | None, typer.Option(metavar="KEY=VALUE", help="Goes with the job; may be repeated.")]
NoWait = Annotated[
    bool, typer.Option("--no-wait", help="Send, print the jobs' ids and end; without it the same command fetches them.")
]
Anew = Annotated[bool, typer.Option("--anew", help="Send everything again, whatever the same command did before.")]


def register(app: typer.Typer) -> None:
    """Add this command to `app`."""
    app.command("extract", help=_HELP, epilog=_EPILOG)(extract)


def extract(
    files: Files = None,
    *,
    from_file: FromFile = None,
    local: Local = False,
    format: As = "json",  # noqa: A002  # the option's name
    out: Out = None,
    overwrite: Overwrite = False,
    detail_level: Detail = "standard",
    languages: Languages = None,
    stages: Stages = None,
    profile: As_Profile = "screenshot",
    frames: Frames = "first",
    model: Model = None,
    prompt: Prompt = None,
    cache: Cache = None,
    metadata: Metadata = None,
    no_wait: NoWait = False,
    anew: Anew = False,
    data_dir: DataDir = None,
) -> None:
    """Read images."""
    from arachne.cli.extract_inputs import find_images, is_alone
    from arachne.cli.signals import ended_as_by_ctrl_c

    lists = {"languages": _split(languages), "stages": _split(stages)}
    there = {"model": model, "prompt": prompt, "cache": cache}
    given = {"detail_level": detail_level, "profile": profile, "frames": frames, **lists, **there}
    options = {name: value for name, value in given.items() if value is not None}
    terms = validate(SubmissionTerms, {"options": options, "metadata": _pairs(metadata or ())})
    if local:
        _refuse_with_local(there | {"metadata": metadata, "no-wait": no_wait, "anew": anew})
    elif data_dir is not None:
        raise typer.BadParameter("Only --local uses a data folder.", param_hint="--data-dir")
    names = _names(files or [], from_file)
    alone = from_file is None and is_alone(names)  # a list of one line may have two the next time
    _check_printing(format, out, alone=alone or no_wait)
    _check_folder(names, format, out)
    images = find_images(names, apart_from=out)
    make_sink = partial(_make_sink, images, format, out, alone=alone, overwrite=overwrite)
    with ended_as_by_ctrl_c():
        if local:
            failed = _read_here(images, terms.options, format, make_sink(None), data_dir)
        else:
            failed = _read_there(names, images, terms, format, make_sink, wait=not no_wait, anew=anew)
    if failed:
        raise typer.Exit(1)


def _read_here(images: Sequence["Input"], options: Options, wanted: Format, sink: "Sink", data_dir: Path | None) -> int:
    from arachne.cli import extract_local

    return extract_local.extract(images, options, load(data_dir), wanted, sink)


def _read_there(
    names: Sequence[str],
    images: Sequence["Input"],
    terms: SubmissionTerms,
    wanted: Format,
    make_sink: "Callable[[Journal], Sink]",
    *,
    wait: bool,
    anew: bool,
) -> int:
    from arachne.cli.extract_journal import open_journal
    from arachne.cli.extract_order import describe, fulfil, sign_in
    from arachne.cli.extract_remote import Order

    settings = sign_in()
    with open_journal(describe(names, images, terms, settings), anew=anew) as journal:
        return fulfil(Order(images, terms, wanted, make_sink(journal), journal, wait=wait), settings)


def _names(files: Sequence[str], from_file: str | None) -> list[str]:
    """All that is named, on the command line and in the list.

    Raises:
        typer.BadParameter: nothing is, or stdin is to be two things, or nothing comes from it.
    """
    from arachne.cli.extract_inputs import STDIN, read_list

    if not files and from_file is None:
        raise typer.BadParameter("Name files, folders, patterns or URLs; - reads an image from stdin.")
    if STDIN in files and from_file == STDIN:
        raise typer.BadParameter("Stdin is either an image or a list: give - once.")
    if (STDIN in files or from_file == STDIN) and sys.stdin is not None and sys.stdin.isatty():
        raise typer.BadParameter("Stdin is this terminal: pipe an image or a list into it.")
    return [*files, *(read_list(from_file) if from_file is not None else ())]


def _check_printing(wanted: Format, out: Path | None, *, alone: bool) -> None:
    if out is not None:
        return
    if wanted in {"hocr", "pdf", "png"} and not alone:
        raise typer.BadParameter(f"Several documents of format {wanted} can't be printed: add --out DIR.")
    if wanted in {"pdf", "png"} and sys.stdout.isatty():
        raise typer.BadParameter(f"A {wanted} can't be shown on a terminal: add --out DIR, or send it to a file.")


def _check_folder(names: Sequence[str], wanted: Format, out: Path | None) -> None:
    """Nothing, where what is written can't be taken for what is read when the command goes on."""
    from arachne.cli.extract_patterns import beginning, is_folder, is_pattern

    if wanted != "png" or out is None:
        return
    searched = [Path(name) for name in names if is_folder(name)] + [beginning(one) for one in names if is_pattern(one)]
    if any(one.resolve() == out.resolve() for one in searched):
        raise typer.BadParameter("Pictures in a folder that is read are read too: name another.", param_hint="--out")


def _make_sink(
    images: Sequence["Input"],
    wanted: Format,
    out: Path | None,
    journal: "Journal | None",
    *,
    alone: bool,
    overwrite: bool,
) -> "Sink":
    from arachne.cli.extract_folder import Folder
    from arachne.cli.extract_output import Printer

    if out is not None:
        return Folder(out, wanted, images, overwrite=overwrite, journal=journal)
    return Printer(wanted, alone=alone)


def _refuse_with_local(given: Mapping[str, object]) -> None:
    if named := [f"--{name}" for name, value in given.items() if value]:
        raise typer.BadParameter(f"{', '.join(named)}: for a service; --local has no use for it.")


def _pairs(given: Sequence[str]) -> dict[str, str]:
    for one in given:
        if "=" not in one:
            raise typer.BadParameter(f"{one!r} is no KEY=VALUE.", param_hint="--metadata")
    pairs = [(key, value) for key, _, value in (one.partition("=") for one in given)]
    if len(dict(pairs)) < len(pairs):
        raise typer.BadParameter("A key is given twice.", param_hint="--metadata")
    return dict(pairs)


def _split(given: list[str] | None) -> list[str] | None:
    found = [word for text in given or () for word in text.replace("+", ",").split(",") if word]
    return found or None
