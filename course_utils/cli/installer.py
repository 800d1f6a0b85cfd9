"""Find or install uv, and run it to create environments and install packages."""

from __future__ import annotations

import ast
import importlib.util
import os
import re
import shutil
import ssl
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from course_language import _
from course_utils.cli import faults
from course_utils.cli.environment import venv_python
from course_utils.cli.faults import SetupError

OLDEST_UV = (0, 9)  # knows --torch-backend and the indexes of CUDA 13
# pip's settings for package indexes, and uv's equivalent variables: uv uses a mirror that is set for pip.
PIP_TO_UV = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "trusted-host": "UV_INSECURE_HOST",
    "cert": "SSL_CERT_FILE",
    "proxy": "HTTPS_PROXY",
    "timeout": "UV_HTTP_TIMEOUT",
    "default-timeout": "UV_HTTP_TIMEOUT",
    "no-index": "",  # an option of uv without a variable
}
# uv's environment variables that could select another Python, project or build.
_MISLEADING = re.compile(
    "UV_(PYTHON|SYSTEM_PYTHON|PROJECT|WORKING_DIR.*|CONFIG_FILE|.*CONSTRAINT|OVERRIDE|EXCLUDE.*|TORCH_BACKEND"
    "|REQUIRE_HASHES|PRERELEASE|RESOLUTION|NO_BINARY.*|VENV_.*)"
)
_PROGRESS = re.compile(r"\s*(Resolved|Downloading|Downloaded|Prepared|Installed)\b")


@dataclass
class Installer:
    """An installer program (uv) and how to run it.

    ``call`` is the command's first words, ``env`` its environment variables, ``root`` the clone's folder,
    named in error messages. Its output goes to the file ``log`` if there is no terminal, or after a failure.
    """

    name: str
    call: Sequence[str]
    env: Mapping[str, str]
    log: Path
    root: Path

    def run(self, *words: str) -> None:
        """Run the program with these arguments; `SetupError`, with the reason, if it fails.

        On a terminal it shows its own progress. If it fails there, it is run a second time, with its output
        captured, to learn the reason.
        """
        if sys.stdout.isatty() and sys.stderr.isatty():
            if subprocess.call([*self.call, *words], env=self.env) == 0:
                return
            print(_("That failed; trying once more."))
        output = []
        with (
            self.log.open("a", encoding="utf-8", buffering=1) as log,
            subprocess.Popen(
                [*self.call, *words],
                env=self.env,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                encoding="utf-8",
                errors="replace",
            ) as process,
        ):
            log.write(f"$ {self.name} {subprocess.list2cmdline(words)}\n")
            try:
                for line in process.stdout or ():
                    log.write(line)
                    output.append(line)
                    if _PROGRESS.match(line):
                        print(f"  {line.strip()[:100]}")
            except BaseException:
                process.terminate()
                raise
        if process.returncode:
            text = "".join(output)
            reason = faults.explain_output(text, self.root) or (
                _("{value} stopped: {last_error}. Call this again to try once more.").format(
                    value=self.name, last_error=faults.last_error(text)
                )
            )
            raise SetupError(_("{reason} Details: {log}").format(reason=reason, log=self.log))


def find_or_install_uv(work: Path, pip_options: Iterable[Sequence[str]] = ((),)) -> str:
    """Return the path of a uv executable of version `OLDEST_UV` or later, installing one if necessary.

    The uv on PATH is preferred, then the one in ``work/uv``; otherwise pip installs uv into ``work/uv``.
    Where this Python has no pip, a virtual environment in ``work/pip`` provides it.

    Parameters
    ----------
    work
        The set-up's folder, ``.venv.setup`` in the clone.
    pip_options
        Lists of options for ``pip install`` (such as an index), tried in order until one works.

    Raises
    ------
    SetupError
        If none does.
    """
    folder = work / "uv"
    if program := _working_uv(folder):
        return program
    python = sys.executable
    if importlib.util.find_spec("pip") is None:
        python = _python_with_pip(work / "pip")
    call = [python, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--upgrade"]
    call += ["--retries", "1", "--no-deps", "--target", str(folder)]
    env = os.environ | {"PIP_USER": "0", "PIP_REQUIRE_VIRTUALENV": "0"}
    output = ""
    for options in pip_options:
        completed = _captured([*call, *options, "uv"], env)
        if program := _working_uv(folder):
            return program
        output = completed.stderr + completed.stdout
    raise SetupError(faults.explain_output(output, work.parent) or faults.NO_UV)


def uv_variables(env: Mapping[str, str]) -> dict[str, str]:
    """Return the environment variables for uv: ``env`` without those in `_MISLEADING`, plus pip's settings.

    Variables of uv that are already in ``env`` take precedence over pip's settings.
    """
    variables = {name: text for name, text in env.items() if not _MISLEADING.fullmatch(name)}
    settings = pip_settings()
    if (
        "extra-index-url" in settings
    ):  # pip takes the best match of all indexes; uv's default is the first index
        variables.setdefault("UV_INDEX_STRATEGY", "unsafe-best-match")
    for name in settings.keys() - {"no-index"}:
        separator = "," if name == "find-links" else " "
        variables.setdefault(PIP_TO_UV[name], separator.join(settings[name].split()))
    certificates = ssl.get_default_verify_paths()
    if sys.platform in ("win32", "darwin") or certificates.cafile or certificates.capath:
        variables.setdefault("UV_SYSTEM_CERTS", "1")  # may have a company's own; pip uses them too
    return variables


def pip_settings() -> dict[str, str]:
    """Return pip's settings for package indexes by option, from its configuration and PIP_* variables."""
    listed = _captured([sys.executable, "-X", "utf8", "-m", "pip", "config", "list"]).stdout
    lines = re.findall(r"(?m)^(?:global|install)\.([\w-]+)=(.*)$", listed)
    settings = {name: str(ast.literal_eval(text)) for name, text in lines}
    for name in PIP_TO_UV:  # a Python without pip lists nothing, not even its variables
        variable = "PIP_" + name.upper().replace("-", "_")
        settings[name] = os.environ.get(variable, settings.get(name, ""))
    return {name: settings[name] for name in PIP_TO_UV if settings[name]}


def _working_uv(folder: Path) -> str | None:
    """Return the path of a uv that runs and is recent enough: on PATH, else in ``folder/bin``; else None."""
    for program in (shutil.which("uv"), shutil.which("uv", path=str(folder / "bin"))):
        try:
            output = _captured([program, "--version"]).stdout if program else ""
        except OSError:  # a uv of another system, or one that may not run
            continue
        version = re.match(r"uv (\d+)\.(\d+)", output)
        if version and tuple(map(int, version.groups())) >= OLDEST_UV:
            return program
    return None


def _python_with_pip(folder: Path) -> str:
    """Create a virtual environment with pip in a folder; return its Python. `SetupError` if that fails."""
    if not (importlib.util.find_spec("venv") and importlib.util.find_spec("ensurepip")):
        raise SetupError(faults.venv_missing_message())
    completed = _captured([sys.executable, "-m", "venv", str(folder)])
    if completed.returncode:
        output = completed.stdout + completed.stderr
        raise SetupError(faults.explain_output(output, folder.parents[1]) or faults.venv_missing_message())
    return str(venv_python(folder))


def _captured(call: Sequence[str], env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run a command with its output captured as text."""
    return subprocess.run(call, env=env, capture_output=True, encoding="utf-8", errors="replace", check=False)
