"""The output of a launch's ranks: read while they run, sorted, reduced to the first error."""

from __future__ import annotations

import re
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import SequenceMatcher
from pathlib import Path

from course_language import _

# Lines that PyTorch's libraries write about themselves.
_NOISE = re.compile(r"USDT:|\[Gloo\] Rank|^\[/\S*gloo/|socket\.cpp|TCPStore|ProcessGroupGloo\.cpp")
_PREFIX = re.compile(r"^\[rank\d+\]: ?")  # PyTorch puts it before each line of a traceback
_NATIVE_LOG = re.compile(r"^(\[rank\d+\]:)?\[?[WEF]\d{4} |^terminate called|^Fatal Python error")
_TRACEBACK_START = re.compile(r'^(Traceback \(most recent call last\):|  File ".+", line \d+)$')
_FRAME = re.compile(r'^\s+File "(.+)", line (\d+)')
_ERROR = re.compile(r"^([A-Za-z_][\w.]*)(?:: (.*))?$")
# Messages of a rank whose cause is that another rank has ended.
_CONSEQUENCE = re.compile(
    r"[Cc]onnection (was )?(closed|reset|refused)|Broken pipe|remote process exited|gloo/transport|"
    r"NCCL|[Tt]imed out|[Ss]ocket [Tt]imeout|recvValue failed"
)
_TIMEOUT = re.compile(r"[Tt]imed out|[Tt]imeout")  # such a rank then exits, which others notice
_EXIT = re.compile(r"failed \(exitcode: (-?\d+)\) local_rank: (\d+)")
_SUMMARY = re.compile(r"rank\s*: (\d+) \(local_rank: \d+\)\s+exitcode\s*: (-?\d+)")
_NATIVE_POSITION = re.compile(r"\[?/\S+\.(?:cc|cpp|h):\d+\]? ")
_MESSAGE_LINES = 12


@dataclass(frozen=True)
class RankError:
    """Why a rank failed; ``str()`` returns a sentence.

    Attributes
    ----------
    ranks
        The rank that failed first, or all ranks that failed with the same error.
    kind
        The exception's type (``"ValueError"``), a signal (``"SIGKILL"``), or ``"exit code 3"``.
    message
        The exception's message; empty for a signal or an exit code.
    trace
        The traceback's lines in files of the script's folder, outermost first.
    """

    ranks: tuple[int, ...]
    kind: str
    message: str = ""
    trace: tuple[str, ...] = ()

    @property
    def rank(self) -> int:
        """The first of ``ranks``."""
        return self.ranks[0]

    def __str__(self) -> str:
        who = " and ".join(f"rank {rank}" for rank in self.ranks)
        if self.kind.startswith("SIG"):
            return _("{who} was killed by the signal {kind}.").format(who=who, kind=_(self.kind))
        return _("{who} stopped with {kind}").format(who=who, kind=_(self.kind)) + (
            f": {self.message}" if self.message else ""
        )


@dataclass(frozen=True)
class _Line:
    """A line that a rank printed in an attempt."""

    rank: int
    attempt: int
    text: str
    is_error: bool


@dataclass
class _File:
    """How far a log file has been read: ``offset`` in bytes; ``rest`` is the beginning of an unfinished line.

    ``attempt``, from 0, is the one whose output the file has now.
    """

    attempt: int
    offset: int = 0
    rest: bytes = b""


@dataclass
class Output:
    """Reads the files to which torchrun redirects the ranks' output, and keeps the lines.

    Parameters
    ----------
    folders
        torchrun's ``--log-dir``, one for each node.
    per_node
        The number of ranks on each node.
    script
        The learner's script.
    """

    folders: Sequence[Path]
    per_node: int
    script: Path
    attempts: int = 1
    _files: dict[Path, _File] = field(default_factory=dict)
    _lines: list[_Line] = field(default_factory=list)

    @property
    def last(self) -> str:
        """The last line of standard output so far, with its rank; ``""`` if there is none."""
        line = next((line for line in reversed(self._lines) if not line.is_error), None)
        return f"rank {line.rank} | {line.text}" if line else ""

    @property
    def ranks(self) -> range:
        """The numbers of all ranks."""
        return range(self.per_node * len(self.folders))

    def read(self, *, to_end: bool = False) -> list[str]:
        """Read new lines and keep them; return the texts of those of standard output, of all ranks.

        ``to_end`` includes an unfinished last line. PyTorch's lines about itself are left out.
        """
        before = len(self._lines)
        for node, folder in enumerate(self.folders):
            logs = sorted(folder.glob("*/attempt_*/*/std*.log"))
            logs.sort(key=lambda path: path.name == "stderr.log")  # standard output first
            for path in logs:
                rank = node * self.per_node + int(path.parent.name)
                attempt = int(path.parent.parent.name.removeprefix("attempt_"))
                file = self._files.setdefault(path, _File(attempt))
                for text in _new_lines(path, file, to_end):
                    if not _NOISE.search(text):
                        is_error = path.name == "stderr.log"
                        self._lines.append(_Line(rank, file.attempt, text, is_error))
                self.attempts = max(self.attempts, file.attempt + 1)
        return [line.text for line in self._lines[before:] if not line.is_error]

    def lines(self, rank: int, attempt: int, *, failed: bool) -> list[str]:
        """Return the lines that a rank printed in one attempt (from 0), of those `read` so far.

        If it ``failed``, they are without its traceback.
        """
        kept, in_traceback = [], False
        for line in self._lines:
            if (line.rank, line.attempt) != (rank, attempt):
                continue
            if line.is_error and failed:
                in_traceback = in_traceback or bool(_TRACEBACK_START.match(_PREFIX.sub("", line.text)))
                if in_traceback or _NATIVE_LOG.match(line.text):
                    continue
            kept.append(line.text)
        return kept

    def error(self, attempt: int, exits: Mapping[int, int]) -> RankError | None:
        """Return the error that made an attempt fail, or None; its ``ranks`` are all that had the same one.

        In order of preference: an exception, a signal, an exit code, and last what looks like a consequence
        of another rank's end, a timeout first. Among equals, the rank that torchrun reported first.

        Parameters
        ----------
        attempt
            The attempt, counted from 0.
        exits
            The exit codes torchrun reported, by rank, the first failure first; negative for a signal.
        """
        candidates = []  # pairs: the smaller the number, the likelier the error is the cause
        for rank in dict.fromkeys([*exits, *self.ranks]):
            error = self._parse_traceback(rank, attempt)
            code = exits.get(rank, 0)
            message = f"{_(error.kind)}: {error.message}" if error else ""
            if error and not _CONSEQUENCE.search(message):
                candidates.append((0, error))
            elif code < 0:
                candidates.append((1, RankError((rank,), _signal_name(-code))))
            elif error:
                candidates.append((3 if _TIMEOUT.search(message) else 4, error))
            elif code:
                candidates.append((2, RankError((rank,), f"exit code {code}")))
        if not candidates:
            return None
        first = min(candidates, key=lambda pair: pair[0])[1]
        alike = [error.rank for _, error in candidates if replace(error, ranks=first.ranks) == first]
        return replace(first, ranks=tuple(sorted(alike)))

    def _parse_traceback(self, rank: int, attempt: int) -> RankError | None:
        """Return the error of the last traceback that a rank printed in an attempt; None if there is none.

        Its ``kind`` is without the module, its message has at most `_MESSAGE_LINES` lines.
        """
        texts = [
            _PREFIX.sub("", line.text)
            for line in self._lines
            if line.is_error and (line.rank, line.attempt) == (rank, attempt)
        ]
        starts = [i for i, text in enumerate(texts) if _TRACEBACK_START.match(text)]
        if not starts:
            return None
        trace, rest = [], texts[starts[-1] :]
        for text, source in zip(rest, [*rest[1:], ""], strict=True):
            if (frame := _FRAME.match(text)) and self._is_own(Path(frame[1])):
                trace.append(
                    _("{Path}, line {third_frame}: {source}").format(
                        Path=Path(frame[1]).name, third_frame=frame[2], source=source.strip()
                    )
                )
        for i, text in enumerate(rest[1:], start=1):
            if error := _ERROR.match(text):
                message = [error[2] or "", *rest[i + 1 : i + _MESSAGE_LINES]]
                return RankError((rank,), error[1].rpartition(".")[2], _clean_message(message), tuple(trace))
        return None

    def _is_own(self, path: Path) -> bool:
        """Return whether a file is in the script's folder and not in an installed package."""
        folder = self.script.resolve().parent
        return folder in path.resolve().parents and "site-packages" not in path.parts


def exits(logs: Sequence[Path], per_node: int) -> dict[int, dict[int, int]]:
    """Parse torchrun's logs, one per node; return the failed ranks' exit codes, by attempt, then by rank.

    Attempts count from 0; a signal's code is negative. Ranks ended by torchrun (SIGTERM) are left out.
    """
    codes: dict[int, dict[int, int]] = {}
    for node, path in enumerate(logs):
        text = path.read_text(encoding="utf-8", errors="replace")
        failures = _EXIT.findall(text)
        for attempt, (code, local_rank) in enumerate(failures):
            codes.setdefault(attempt, {})[node * per_node + int(local_rank)] = int(code)
        for rank, code in _SUMMARY.findall(text):
            if int(code) != -signal.SIGTERM:  # torchrun's own, for the ranks that were left
                codes.setdefault(max(len(failures) - 1, 0), {}).setdefault(int(rank), int(code))
    return codes


def group(by_rank: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines, labelled by rank; what all ranks printed alike stands once, as ``all ranks | ...``.

    Parameters
    ----------
    by_rank
        The lines of each rank, in its order.

    Examples
    --------
    >>> group([["start", "loss 1"], ["start", "loss 2"]])
    ['all ranks | start', 'rank 0 | loss 1', 'rank 1 | loss 2']
    """
    common = list(by_rank[0]) if len(by_rank) > 1 else []
    for lines in by_rank[1:]:
        matches = SequenceMatcher(None, common, lines, autojunk=False).get_matching_blocks()
        common = [line for match in matches for line in common[match.a : match.a + match.size]]
    rest = [list(lines) for lines in by_rank]
    out = []
    for line in [*common, None]:
        for rank, lines in enumerate(rest):
            upto = lines.index(line) if line is not None else len(lines)
            out += [f"rank {rank} | {text}" for text in lines[:upto]]
            del lines[: upto + 1]
        if line is not None:
            out.append(_("all ranks | {line}").format(line=line))
    return out


def _new_lines(path: Path, file: _File, to_end: bool) -> list[str]:
    """Return the lines added to a file since the last call, and advance ``file``.

    An unfinished last line waits for a later call, unless ``to_end``. A file that has become shorter is read
    from its start, as the next attempt. Of a progress bar, the last state is returned. A file that cannot be
    read has no new lines.
    """
    try:
        with path.open("rb") as stream:
            size = stream.seek(0, 2)
            if size < file.offset:  # a node that joins again begins its files again
                file.attempt, file.offset, file.rest = file.attempt + 1, 0, b""
            stream.seek(file.offset)
            data = file.rest + stream.read(size - file.offset)
    except OSError:  # just being replaced
        return []
    file.offset = size
    *whole, file.rest = data.split(b"\n")
    if to_end and file.rest:
        whole, file.rest = [*whole, file.rest], b""
    texts = [line.decode("utf-8", errors="replace").rstrip() for line in whole]
    return [text.rpartition("\r")[2] for text in texts]  # of a bar, how it ended


def _clean_message(lines: Sequence[str]) -> str:
    """Return a message's lines joined, without the native call stack and source positions."""
    kept: list[str] = []
    for line in lines:
        if line.startswith(("Exception raised from", "frame #")) or _NATIVE_LOG.match(line):
            break
        kept.append(line)
    return _NATIVE_POSITION.sub("", "\n".join(kept).strip())


def _signal_name(number: int) -> str:
    """Return a signal's name, such as ``"SIGKILL"``; ``"SIG99"`` for an unknown number."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"SIG{number}"
