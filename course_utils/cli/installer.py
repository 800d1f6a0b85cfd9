"""Install packages with uv, in seconds, or with pip where uv cannot be had.

On a terminal they draw their own progress; elsewhere their chief lines are printed and all of them
go to a file. A failure becomes one sentence.
"""

from __future__ import annotations

import ast
import os
import re
import shutil
import ssl
import subprocess
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from pathlib import Path

from course_utils.cli import remedies
from course_utils.cli.remedies import SetupError

OLDEST_UV = (0, 9)  # knows --torch-backend and the indexes of CUDA 13
# What pip was told of the way to its packages, by file or variable, in uv's words: pip's mirror serves uv too.
PIP_TO_UV = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "trusted-host": "UV_INSECURE_HOST",
    "timeout": "UV_HTTP_TIMEOUT",
    "default-timeout": "UV_HTTP_TIMEOUT",
    "cert": "SSL_CERT_FILE",
    "proxy": "HTTPS_PROXY",
    "no-index": "",  # an option of uv's without a variable
}
# Variables of uv that say how packages are reached; the others could lead it to another Python or project.
UV_KEPT = re.compile(
    "UV_(DEFAULT_INDEX|EXTRA_INDEX.*|INDEX.*|FIND_LINKS|INSECURE_HOST|KEYRING_PROVIDER|HTTP_.*|OFFLINE"
    "|SYSTEM_CERTS|NATIVE_TLS|CACHE_DIR|NO_CACHE|LINK_MODE|CONCURRENT_.*|CUDA_DRIVER_VERSION|AMD_GPU.*)"
)
CHIEF = re.compile(
    r"\s*(Resolved|Downloading|Downloaded|Prepared|Installed|Installing collected)\b"
)


class Installer:
    """The uv, or where that is None the pip, that fills an environment.

    Parameters
    ----------
    python, uv, env
        The environment's Python, the uv, and the variables either runs with.
    log
        The file that gets what is printed where there is no terminal, or a failure.
    root
        The clone, for what is said about disk and rights.
    constraints
        A file of exact versions; hashes in it are those for Linux, x86-64, and pip would want all or none.
    """

    def __init__(
        self,
        python: Path,
        uv: str | None,
        env: Mapping[str, str],
        log: Path,
        root: Path,
        constraints: Path | None,
    ) -> None:
        self.name = "uv" if uv else "pip"
        self.env = uv_variables(env) if uv else env
        self.call = [uv, "pip"] if uv else [str(python), "-u", "-X", "utf8", "-m", "pip"]
        self.where = ["--python", str(python)] if uv else []
        if constraints and not (uv and sysconfig.get_platform() == "linux-x86_64"):
            versions = re.sub(r" --hash=\S+", "", constraints.read_text(encoding="utf-8"))
            constraints = log.with_name("versions.txt")
            constraints.write_text(versions, encoding="utf-8")
        self.which = ["-c", str(constraints)] if constraints else []
        self.log, self.root = log, root
        self.terminal = sys.stdout.isatty() and sys.stderr.isatty()
        log.write_text("", encoding="utf-8")

    def install(self, what: Sequence[str]) -> None:
        """Install requirements; raise `SetupError` with the reason and the remedy where that fails."""
        offline = self.where and pip_settings().get("no-index", "0").lower() in ("1", "true", "yes")
        closed = ["--no-index"] if offline and "--no-index" not in what else []
        self._do(["install", *self.where, *self.which, *closed, *what])

    def wheels(self, what: Sequence[str], folder: Path) -> None:
        """Put the wheels of requirements, and of all they need, into a folder, with pip."""
        self._do(["wheel", *self.which, "--wheel-dir", str(folder), *what])

    def uninstall(self, package: str) -> None:
        """Take a package out, if it is there."""
        self._listen(["uninstall", *(self.where or ["--yes"]), package])

    def _do(self, words: Sequence[str]) -> None:
        """Run; what failed before the learner's eyes is run once more, to learn the reason."""
        if self.terminal:
            if subprocess.call([*self.call, *words], env=self.env) == 0:
                return
            print("That failed; trying once more.", flush=True)
        status, said = self._listen(words)
        if status:
            reason = remedies.of_output(said, self.root) or (
                f"{self.name} stopped: {remedies.last_words(said)}. Call this again to try once more."
            )
            raise SetupError(f"{reason} Details: {self.log}")

    def _listen(self, words: Sequence[str]) -> tuple[int, str]:
        """Run; print the chief lines, keep all of them; return the exit status and what was said."""
        said = []
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
                    said.append(line)
                    if CHIEF.match(line):
                        print(f"  {line.strip()[:100]}", flush=True)
            except BaseException:
                process.terminate()
                raise
        return process.returncode, "".join(said)


def get_uv(folder: Path, python: Path | str, source: Sequence[str]) -> str | None:
    """Return a uv that works: of the PATH, else its wheel in a folder of its own; None where pip must do.

    Parameters
    ----------
    folder
        Where the wheel goes; no environment is changed.
    python
        A Python whose pip can fetch it.
    source
        Options that say from where.
    """
    if os.environ.get("COURSE_INSTALLER") == "pip":
        return None
    call = [str(python), "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    call += ["--retries", "1", "--no-deps", "--upgrade", "--target", str(folder), *source, "uv"]
    for attempt in range(2):
        for found in (shutil.which("uv"), shutil.which("uv", path=str(folder / "bin"))):
            if found and _uv_version(found) >= OLDEST_UV:
                return found
        if attempt == 0:
            env = os.environ | {"PIP_USER": "0", "PIP_REQUIRE_VIRTUALENV": "0"}
            subprocess.run(call, env=env, capture_output=True, check=False)
    return None


def uv_variables(env: Mapping[str, str]) -> dict[str, str]:
    """Return variables for uv: what would mislead it is gone, and what pip was told is handed on."""
    kept = {k: v for k, v in env.items() if not k.startswith("UV_") or UV_KEPT.fullmatch(k)}
    told = pip_settings()
    told["find-links"] = ",".join(told.get("find-links", "").split())
    if "UV_INDEX_URL" in kept:  # the same as UV_DEFAULT_INDEX
        told.pop("index-url", None)
    if "extra-index-url" in told:  # pip takes the best of all indexes, uv by itself the first one's
        kept.setdefault("UV_INDEX_STRATEGY", "unsafe-best-match")
    for name, variable in PIP_TO_UV.items():
        if variable and told.get(name):
            kept.setdefault(variable, " ".join(told[name].split()))
    places = ssl.get_default_verify_paths()
    if sys.platform in ("win32", "darwin") or places.cafile or places.capath:
        kept.setdefault("UV_SYSTEM_CERTS", "1")  # a company's own are there; pip looks there too
    return kept


def pip_settings() -> dict[str, str]:
    """Return what pip's files and variables say of the way to its packages."""
    call = [sys.executable, "-X", "utf8", "-m", "pip", "config", "list"]
    listed = subprocess.run(call, capture_output=True, encoding="utf-8", check=False).stdout
    lines = re.findall(r"(?m)^(?:global|install)\.([\w-]+)=(.*)$", listed)
    found = {name: str(ast.literal_eval(text)) for name, text in lines}
    for name in PIP_TO_UV:  # a Python without pip lists nothing, not even its variables
        found[name] = os.environ.get("PIP_" + name.upper().replace("-", "_"), found.get(name, ""))
    return {name: text for name, text in found.items() if text}


def _uv_version(uv: str) -> tuple[int, ...]:
    try:
        done = subprocess.run([uv, "--version"], capture_output=True, text=True, check=False)
    except OSError:  # a uv of another system, or one that may not run
        return ()
    found = re.match(r"uv (\d+)\.(\d+)", done.stdout)
    return tuple(map(int, found.groups())) if found else ()
