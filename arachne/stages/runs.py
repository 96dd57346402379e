"""Latin letters and digits among letters the second reader has not learned: it reads them well once cut out."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from arachne.stages.arrays import Gray, resized, union
from arachne.stages.merge import MergeOptions, chosen, in_order
from arachne.stages.rapid import LINE_PX, SecondReader, SeenLine
from arachne.stages.read import Overview, Reading, ReadWord, mean_confidence

_FIRST_FOREIGN = 0x0590


@dataclass(frozen=True)
class RunOptions:
    """Confidences, 0..1, below which runs of digits and runs with letters are looked at again; their least length."""

    sure_digits: float = 0.9
    sure_letters: float = 0.95
    shortest: int = 2
    most: int = 30
    merging: MergeOptions = field(default_factory=MergeOptions)


def with_runs(reading: Reading, over: Overview, second: SecondReader, options: RunOptions) -> Reading:
    """The reading of a picture that was looked over, with its unsure Latin runs as the second reader sees them.

    Raises:
        SecondReaderLost: it gave no answer.
    """
    gone, new = set[int](), list[ReadWord]()
    unsure = [run for run in _latin_runs(reading.words) if _is_unsure(run, options)]
    for run in unsure[: options.most]:
        line = _seen(run, over.gray, second)
        if line is not None and line.confidence > max(0.9, mean_confidence(run)):
            gone.update(id(word) for word in run)
            new += chosen(run, line, over.gray, over.regions, options.merging)
    words = tuple(in_order([*(word for word in reading.words if id(word) not in gone), *new]))
    return Reading(words, round(mean_confidence(words), 4), reading.degraded)


def _latin_runs(words: Sequence[ReadWord]) -> Iterator[list[ReadWord]]:
    """Words of a line that follow each other and have no foreign letter."""
    run = list[ReadWord]()
    for word in words:
        beside = bool(run) and (run[-1].region, run[-1].line) == (word.region, word.line)
        if run and not (beside and _is_latin(word)):
            yield run
            run = []
        if _is_latin(word) and (run or _tells(word)):
            run.append(word)
    if run:
        yield run


def _is_latin(word: ReadWord) -> bool:
    """Whether it has no letters of another script; other digits may be misread Latin letters."""
    return all(ord(one) < _FIRST_FOREIGN or one.isdigit() or not one.isalnum() for one in word.text)


def _tells(word: ReadWord) -> bool:
    return any(one.isalnum() for one in word.text)


def _is_unsure(run: Sequence[ReadWord], options: RunOptions) -> bool:
    text = "".join(word.text for word in run)
    if len(text) < options.shortest or not any(ord(one) < _FIRST_FOREIGN and not one.isspace() for one in text):
        return False
    letters = any(one.isalpha() or ord(one) >= _FIRST_FOREIGN or one in "%>*" for one in text)
    return min(word.confidence for word in run) < (options.sure_letters if letters else options.sure_digits)


def _seen(run: Sequence[ReadWord], gray: Gray, second: SecondReader) -> SeenLine | None:
    """What the second reader sees of the run alone, in pixels of the picture."""
    box = union([word.box for word in run]).grown(4)
    left, top = max(0, int(box.x)), max(0, int(box.y))
    part = gray[top : int(box.bottom) + 1, left : int(box.right) + 1]
    factor = min(1.0, LINE_PX / part.shape[0])
    line = next(iter(second(resized(part, factor)[:LINE_PX], ())), None)
    if line is None:
        return None
    characters = tuple(replace(one, x=one.x / factor + left) for one in line.characters)
    return SeenLine(union([word.box for word in run]).grown(1), characters)
