"""`arachne extract`: images read by a service, or on this machine, and printed or written."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from arachne.cli.options import DataDir, load, validate
from arachne.formats import Format
from arachne.schemas.options import CacheMode, DetailLevel, Options, Profile

if TYPE_CHECKING:
    from arachne.cli.extract_inputs import Input
    from arachne.cli.extract_journal import Journal
    from arachne.cli.extract_output import Sink

_HELP = """Read images: files, folders (searched for images), patterns such as 'shots/**/*.png', URLs, and - for stdin.

A service reads them, at ARACHNE_URL, signed in to with ARACHNE_TOKEN, or ARACHNE_CLIENT_ID and ARACHNE_CLIENT_SECRET;
with --local this machine does.

Prints what was read, in the order given: one image alone as it is, several as JSON lines with the member `file`, or as
texts parted by form feeds. With --out writes DIR/<name>.<format>, each as soon as it is read.

Interrupted, the same command goes on within a day with what the service has: nothing is sent or written twice, only
what failed or has changed is read anew; --anew starts over.

Exit codes: 0 all read, 1 some could not be (which and why on stderr; the others are read all the same), 2 wrong usage,
3 set-up needs mending, or the service is not there or doesn't let this client in, 130 interrupted.
"""

Files = Annotated[
    list[str], typer.Argument(metavar="FILE|URL…", help="Files, folders, patterns, URLs, or -.", show_default=False)
]
Local = Annotated[bool, typer.Option("--local", help="Read in this machine's own processes; no service is needed.")]
As = Annotated[Format, typer.Option("--format", help="json, md, txt, hocr, pdf (searchable) or png (boxes drawn).")]
Out = Annotated[Path | None, typer.Option(help="Folder to write DIR/<name>.<format> to; made where it is missing.")]
Overwrite = Annotated[
    bool, typer.Option("--overwrite", help="Replace files in DIR, never images that are read; else names get a -2.")
]
Detail = Annotated[DetailLevel, typer.Option(help="fast, standard or detailed.")]
Languages = Annotated[
    list[str] | None,
    typer.Option(help="Such as eng+tha, or auto; else as the service, or ARACHNE_LANGUAGES, says."),
]
Stages = Annotated[list[str] | None, typer.Option(help="Only these stages, such as read,structure, and those before.")]
As_Profile = Annotated[Profile, typer.Option("--profile", help="screenshot, document or slip.")]
Frames = Annotated[Literal["first", "all"], typer.Option(help="Pages of a TIFF, frames of an animation: first or all.")]
Model = Annotated[str | None, typer.Option(help="The vision-language model; auto when not given.")]
Prompt = Annotated[str | None, typer.Option(help="Added to what the model is asked.")]
Cache = Annotated[CacheMode | None, typer.Option(help="use, refresh or bypass.")]
Metadata = Annotated[list[str] | None, typer.Option(metavar="KEY=VALUE", help="Kept with the jobs; may be repeated.")]
NoWait = Annotated[
    bool,
    typer.Option("--no-wait", help="Only send, and print the jobs' ids; the same command without it waits."),
]
Anew = Annotated[bool, typer.Option("--anew", help="Forget what an earlier run of the same command sent.")]


def register(app: typer.Typer) -> None:
    """Add this command to `app`."""
    app.command("extract", help=_HELP)(extract)


def extract(
    files: Files,
    *,
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
    here = {"detail_level": detail_level, "profile": profile, "frames": frames}
    lists = {"languages": _split(languages), "stages": _split(stages)}
    there = {"model": model, "prompt": prompt, "cache": cache}
    given = {name: value for name, value in (here | lists | there).items() if value is not None}
    options = validate(Options, given)
    target = Target(files, format, out, overwrite=overwrite)
    if local:
        _refuse_with_local(there | {"metadata": metadata, "no-wait": no_wait or None, "anew": anew or None})
        failed = _extract_here(target, options, data_dir)
    else:
        if data_dir is not None:
            raise typer.BadParameter("Only --local uses a data folder.", param_hint="--data-dir")
        failed = _extract_there(target, given | _metadata(metadata), wait=not no_wait, anew=anew)
    if failed:
        raise typer.Exit(1)


class Target:
    """What is to be read, and where what was read goes to."""

    def __init__(self, files: list[str], wanted: Format, out: Path | None, *, overwrite: bool) -> None:
        from arachne.cli.extract_inputs import find_images, is_alone

        self.files, self.format, self.out = files, wanted, out
        self._overwrite = overwrite
        self._alone = is_alone(files)
        if out is None:
            self._check_printing()
        self.images: list[Input] = find_images(files, apart_from=out)

    def open_sink(self, journal: "Journal | None" = None) -> "Sink":
        """Where documents go. With a journal, files that an earlier run wrote are known."""
        from arachne.cli.extract_output import Folder, Printer

        if self.out is None:
            return Printer(self.format, alone=self._alone)
        return Folder(self.out, self.format, self.images, overwrite=self._overwrite, journal=journal)

    def _check_printing(self) -> None:
        if self.format in {"hocr", "pdf", "png"} and not self._alone:
            raise typer.BadParameter(f"Several documents of format {self.format} can't be printed: add --out DIR.")
        if self.format in {"pdf", "png"} and sys.stdout.isatty():
            raise typer.BadParameter(
                f"A {self.format} can't be shown on a terminal: add --out DIR, or send it to a file."
            )


def _extract_here(target: Target, options: Options, data_dir: Path | None) -> int:
    from arachne.cli import extract_local

    settings = load(data_dir)
    return extract_local.extract(target.images, options, settings, target.format, target.open_sink())


def _extract_there(target: Target, terms: Mapping[str, object], *, wait: bool, anew: bool) -> int:
    from arachne.cli import extract_remote
    from arachne.cli.extract_journal import open_journal
    from arachne.client import ClientSettings

    settings = ClientSettings()
    settings.check()
    command = {
        "url": settings.url,
        "client": settings.client_id if settings.token is None else None,
        "folder": str(Path.cwd()),
        "files": target.files,
        "terms": terms,
    }
    with open_journal(command, anew=anew) as journal:
        order = extract_remote.Order(target.images, terms, target.format, target.open_sink(journal), journal, wait=wait)
        return extract_remote.extract(order, settings)


def _refuse_with_local(options: Mapping[str, object]) -> None:
    for name, value in options.items():
        if value is not None:
            raise typer.BadParameter(f"--{name} is for a service: leave it or --local out.", param_hint=f"--{name}")


def _metadata(pairs: list[str] | None) -> dict[str, object]:
    found: dict[str, str] = {}
    for pair in pairs or ():
        key, equals, value = pair.partition("=")
        if not key or not equals:
            raise typer.BadParameter(f"{pair!r} is not KEY=VALUE.", param_hint="--metadata")
        found[key] = value
    return {"metadata": found} if found else {}


def _split(given: list[str] | None) -> list[str] | None:
    found = [word for text in given or () for word in text.replace("+", ",").split(",") if word]
    return found or None
