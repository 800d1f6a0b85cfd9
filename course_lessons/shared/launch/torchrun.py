"""``run``: start torchrun, wait with a time limit, print the ranks' output, leave no process behind."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from course_language import _, ngettext
from course_utils.tqdm_bar import bar

from . import prepare, processes
from .output import Output, RankError, exits, group
from .prepare import Kill

_NODE_GRACE = 5.0  # seconds the other nodes get to end by themselves when one has failed


@dataclass(frozen=True)
class Finished:
    """The result of a launch.

    Attributes
    ----------
    ok
        Whether every rank succeeded in the last attempt.
    lines
        The lines that each rank printed, by rank; all attempts one after another.
    seconds
        Wall-clock time from start to end.
    error
        The first error of the last attempt, or None.
    attempts
        How many times the ranks were started.
    stopped
        Why the launch was stopped: ``"time limit"``, or ``""`` if it was not.
    """

    ok: bool
    lines: dict[int, list[str]] = field(repr=False)
    seconds: float
    error: RankError | None
    attempts: int
    stopped: str = ""


def run(
    script: str | os.PathLike[str],
    *arguments: str,
    ranks: int = 2,
    seconds: float = 60.0,
    restarts: int = 0,
    nodes: int = 1,
    kill: Kill | None = None,
    environment: Mapping[str, str] | None = None,
    quiet: bool = False,
) -> Finished:
    """Run a script in several processes on this machine with torchrun, and print their output.

    An error in a rank is printed and returned in the result, not raised.

    Parameters
    ----------
    script
        The script's path.
    arguments
        The script's command-line arguments.
    ranks
        The total number of processes, the same on each node.
    seconds
        The time limit, after which all processes are terminated.
    restarts
        How many times torchrun may restart all ranks after one has failed.
    nodes
        The number of simulated machines, each with a torchrun of its own.
    kill
        A rank to kill on purpose, and when.
    environment
        Environment variables for the ranks, in addition to those of this process.
    quiet
        Print nothing.

    Raises
    ------
    ValueError
        If there is no such script, or a number is invalid.
    RuntimeError
        If this PyTorch, or this Python, cannot run several processes.
    KeyboardInterrupt
        If the cell is interrupted; all processes are terminated first.

    Examples
    --------
    >>> done = run("work/train.py", "--epochs", "2", ranks=2, seconds=60)
    """
    script = Path(script)
    prepare.check_arguments(script, ranks, seconds, restarts, nodes, kill)
    prepare.check_pytorch(ranks)
    say = (lambda line: None) if quiet else print
    torchrun_arguments = [*prepare.options(ranks, nodes, restarts), str(script), *map(str, arguments)]
    environment = {name: str(value) for name, value in (environment or {}).items()}
    if restarts:
        # Else gloo finds the addresses of dead ranks in the store (pytorch/pytorch#135712).
        environment = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1", **environment}
    assignments = "".join(f"{name}={shlex.quote(value)} " for name, value in environment.items())
    command = assignments + shlex.join(["torchrun", *torchrun_arguments])
    say(f"$ {command}" + (_("    # on each of {nodes} nodes").format(nodes=nodes) if nodes > 1 else ""))

    with tempfile.TemporaryDirectory(prefix="launch-", ignore_cleanup_errors=True) as folder:
        launch = _Launch(Path(folder), script, ranks, nodes)
        try:
            launch.start(torchrun_arguments, prepare.environment(ranks, folder, environment))
            stopped = launch.wait(seconds, kill, quiet)
            left = launch.ranks_left() if stopped else []
        except KeyboardInterrupt:
            launch.end()
            launch.show_output(say, failed=False)
            say(_("Interrupted: all ranks were stopped."))
            raise
        finally:
            launch.end()
        ok = not stopped and all(agent.returncode == 0 for agent in launch.agents)
        lines, error = launch.show_output(say, failed=not ok and not stopped)
        if kill and not launch.killed:
            say(_("No rank said {after!r}, so none was killed.").format(after=kill.after))
        if stopped:
            say(_("Stopped at the time limit of {seconds:g} s.").format(seconds=seconds))
            for line in left:
                say(f"    {line}")
            say(_("A collective that not every rank calls waits for ever."))
        return Finished(ok, lines, launch.seconds, error, launch.output.attempts, stopped)


class _Launch:
    """The processes of one launch, and their output.

    Parameters
    ----------
    folder
        An empty folder for torchrun's files.
    script
        The learner's script.
    ranks, nodes
        The total numbers.
    """

    def __init__(self, folder: Path, script: Path, ranks: int, nodes: int) -> None:
        self.mark = uuid.uuid4().hex
        self.agents: list[subprocess.Popen] = []
        self.folders = [folder / f"node{node}" for node in range(nodes)]
        self.logs = [folder / f"node{node}.log" for node in range(nodes)]
        self.output = Output(self.folders, ranks // nodes, script)
        self.began = time.monotonic()
        self.seconds = 0.0
        self.progress = ""
        self.killed = False

    def start(self, arguments: Sequence[str], environment: Mapping[str, str]) -> None:
        """Start one torchrun for each node."""
        for node, (folder, log) in enumerate(zip(self.folders, self.logs, strict=True)):
            folder.mkdir()
            # Nodes are numbered in the order of their addresses, and both of these are this machine.
            address = "127.0.0.1" if node == 0 else "localhost"
            with log.open("wb") as file:
                agent = subprocess.Popen(
                    [
                        *(sys.executable, "-m", "course_lessons.shared.launch.agent"),
                        *(f"--local-addr={address}", f"--log-dir={folder}", "--redirects=3"),
                        *arguments,
                    ],
                    env={**environment, processes.MARK: self.mark},
                    stdin=subprocess.PIPE,
                    stdout=file,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                    creationflags=getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0),
                )
            self.agents.append(agent)

    def wait(self, limit: float, kill: Kill | None, quiet: bool) -> str:
        """Wait until all torchruns have ended; return ``"time limit"`` after ``limit`` seconds, else ``""``.

        Kills a rank if ``kill`` asks for it, and shows the last line of output unless ``quiet``. If a node
        fails, the others get `_NODE_GRACE` seconds.
        """
        failed_at = None
        with bar(disable=quiet, bar_format=" ") as progress:
            while any(agent.poll() is None for agent in self.agents):
                new = self.output.read()
                self.seconds = time.monotonic() - self.began
                if kill and not self.killed and any(kill.after in line for line in new):
                    processes.kill(processes.ranks(self.mark).get(kill.rank, []))
                    self.killed = True
                if any(agent.returncode for agent in self.agents):
                    failed_at = failed_at or self.seconds
                    if self.seconds > failed_at + _NODE_GRACE:
                        break
                if self.seconds > limit:
                    return "time limit"
                self._show(progress, self.output.last)
                time.sleep(0.05)
            self.seconds = time.monotonic() - self.began
            self._show(progress, "")
        return ""

    def _show(self, progress: bar, last: str) -> None:
        """Show the number of ranks, the time and the last line of output in the progress bar."""
        count = len(self.output.ranks)
        ranks = ngettext("{count} rank", "{count} ranks", count).format(count=count)
        text = f"{ranks}{_(', ')}{self.seconds:.0f} s   {last}"[:100].rstrip()
        if text != self.progress:
            progress.bar_format = text.replace("{", "{{").replace("}", "}}")
            progress.refresh()
            self.progress = text

    def ranks_left(self) -> list[str]:
        """Return a line of text for each rank: whether it is still running, and the last line it printed."""
        alive = processes.ranks(self.mark)
        self.output.read(to_end=True)
        report = []
        for rank in self.output.ranks:
            lines = self.output.lines(rank, self.output.attempts - 1, failed=False)
            state = _("still ran") if rank in alive else _("had ended")
            last_output = _("last: {last_line}").format(last_line=lines[-1]) if lines else _("nothing")
            report.append(
                _("rank {rank} {state}; it said {last}").format(rank=rank, state=state, last=last_output)
            )
        return report

    def end(self) -> None:
        """Terminate all processes that are still running."""
        processes.end_all(self.agents, self.mark)

    def show_output(
        self, say: Callable[[str], None], *, failed: bool
    ) -> tuple[dict[int, list[str]], RankError | None]:
        """Print each attempt's output and error; return the lines by rank, and the last attempt's error."""
        output, error = self.output, None
        output.read(to_end=True)
        codes = exits(self.logs, output.per_node)
        lines: dict[int, list[str]] = {rank: [] for rank in output.ranks}
        for attempt in range(output.attempts):
            restarted = attempt < output.attempts - 1
            by_rank = [output.lines(rank, attempt, failed=failed or restarted) for rank in lines]
            for rank, of_attempt in enumerate(by_rank):
                lines[rank] += of_attempt
            for line in group(by_rank):
                say(line)
            error = output.error(attempt, codes.get(attempt, {})) if failed or restarted else None
            if error:
                self._show_error(say, error)
            elif failed and not restarted:
                say(_("torchrun itself stopped: {last_line}").format(last_line=_last_line(self.logs)))
            if restarted:
                say(_("torchrun started all ranks again: attempt {attempt}.").format(attempt=attempt + 2))
        return lines, error

    def _show_error(self, say: Callable[[str], None], error: RankError) -> None:
        """Print an error with its traceback, and what became of the other ranks."""
        say(str(error))
        for line in error.trace:
            say(f"    {line}")
        if error.kind == "SIGKILL" and not self.killed:
            say(_("Systems do this to a process when the memory runs out."))
        if len(error.ranks) < len(self.output.ranks):
            say(_("The other ranks were stopped."))


def _last_line(logs: Sequence[Path]) -> str:
    """Return the last line that is not empty in torchrun's logs."""
    texts = [log.read_text(encoding="utf-8", errors="replace").split("\n") for log in logs]
    lines = [line.strip() for text in texts for line in text if line.strip()]
    return lines[-1] if lines else _("it said nothing.")
