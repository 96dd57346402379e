"""`arachne extract`: reads images on this machine and prints or writes what they say."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from arachne.cli.options import DataDir, load
from arachne.formats import Format
from arachne.schemas.options import DetailLevel, Options, Profile

if TYPE_CHECKING:
    from arachne.cli.extract_inputs import Input
    from arachne.cli.extract_output import Sink

_HELP = """Read images: files, folders (searched for images) and patterns such as 'shots/**/*.png'.

Prints what was read, in the order given: one file alone as it is, several as JSON lines with the member `file`, or as
texts parted by form feeds. With --out writes DIR/<name>.<format>, each as soon as it is read.

Exit codes: 0 all read, 1 some could not be (which and why on stderr; the others are read all the same), 2 wrong usage,
3 set-up needs mending, 130 interrupted.
"""

Files = Annotated[list[str], typer.Argument(metavar="FILE…", help="Files, folders or patterns.", show_default=False)]
Local = Annotated[bool, typer.Option("--local", help="Read in this machine's own processes; no server is needed.")]
As = Annotated[Format, typer.Option("--format", help="json, md, txt, hocr, pdf (searchable) or png (boxes drawn).")]
Out = Annotated[Path | None, typer.Option(help="Folder to write DIR/<name>.<format> to; made where it is missing.")]
Overwrite = Annotated[
    bool, typer.Option("--overwrite", help="Replace files in DIR, never images that are read; else names get a -2.")
]
Detail = Annotated[DetailLevel, typer.Option(help="fast, standard or detailed.")]
Languages = Annotated[
    list[str] | None, typer.Option(help="Such as eng+tha, or auto; ARACHNE_LANGUAGES when not given.")
]
Stages = Annotated[list[str] | None, typer.Option(help="Only these stages, such as read,structure, and those before.")]
As_Profile = Annotated[Profile, typer.Option("--profile", help="screenshot, document or slip.")]
Frames = Annotated[Literal["first", "all"], typer.Option(help="Pages of a TIFF, frames of an animation: first or all.")]


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
    data_dir: DataDir = None,
) -> None:
    """Read images."""
    from arachne.cli import extract_local
    from arachne.cli.extract_inputs import find_images, is_pattern

    if not local:
        raise typer.BadParameter("This version of the command reads on this machine only: add --local.")
    given = {"detail_level": detail_level, "profile": profile, "frames": frames}
    options = _options(**given, languages=_split(languages), stages=_split(stages))
    alone = len(files) == 1 and not Path(files[0]).is_dir() and not is_pattern(files[0])
    images = find_images(files, apart_from=out)
    sink = _sink(images, format, out, alone=alone, overwrite=overwrite)
    if extract_local.extract(images, options, load(data_dir), format, sink):
        raise typer.Exit(1)


def _sink(images: Sequence["Input"], wanted: Format, out: Path | None, *, alone: bool, overwrite: bool) -> "Sink":
    from arachne.cli.extract_output import Folder, Printer

    if out is not None:
        return Folder(out, wanted, images, overwrite=overwrite)
    if wanted in {"hocr", "pdf", "png"} and not alone:
        raise typer.BadParameter(f"Several documents of format {wanted} can't be printed: add --out DIR.")
    if wanted in {"pdf", "png"} and sys.stdout.isatty():
        raise typer.BadParameter(f"A {wanted} can't be shown on a terminal: add --out DIR, or send it to a file.")
    return Printer(wanted, alone=alone)


def _options(**given: object) -> Options:
    from pydantic import ValidationError

    try:
        return Options.model_validate(given)
    except ValidationError as error:
        told = "; ".join(f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors())
        raise typer.BadParameter(told) from None


def _split(given: list[str] | None) -> list[str] | None:
    found = [word for text in given or () for word in text.replace("+", ",").split(",") if word]
    return found or None
