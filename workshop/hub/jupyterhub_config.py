"""JupyterHub for a workshop on one Linux server, started by root. README.md explains each choice.

Each seat is a Unix account of its own, which the hub makes at the first login.
"""

from __future__ import annotations

import os
import pwd
import re
import resource
import sys
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlencode

from jupyterhub.auth import LocalAuthenticator
from jupyterhub.spawner import LocalProcessSpawner

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import seats  # noqa: E402

STATE = Path(os.environ.get("COURSE_HUB_STATE", "/var/lib/course-hub"))
SEATS = Path(os.environ.get("COURSE_HUB_SEATS", STATE / "seats.csv"))
HOMES = os.environ.get("COURSE_HUB_HOMES", "/home")
CLONE = os.environ.get("COURSE_HUB_CLONE", str(HERE.parent.parent))
BRANCH = os.environ.get("COURSE_HUB_BRANCH", "main")
MEMORY = os.environ.get("COURSE_HUB_MEMORY", "3G")
THREADS = os.environ.get("COURSE_HUB_THREADS", "1")
GPUS = os.environ.get("COURSE_HUB_GPUS", "0")

FOLDER = "pytorch-gpu-course"
FIRST = f"lab/tree/{FOLDER}/notebooks/00_start_here.ipynb"
MARK = "seat of the GPU course"  # in an account's comment field: the hub made it
PROCESSES = 512  # threads count too
BUSY = 5  # how far learners stand back behind the hub when all cores are taken, in nice values


class SeatsAuthenticator(LocalAuthenticator):
    """Log in with a line of the seats file; never as an account that the hub did not make."""

    async def authenticate(self, handler, data):
        """Return the seat's name, or None."""
        try:
            name = seats.who(SEATS, data["username"], data["password"])
        except seats.SeatsError as error:
            self.log.error("nobody can log in: %s", error)
            return None
        if name and not _is_free_or_ours(name):
            self.log.error("%s is an account of this server: rename the seat", name)
            return None
        return name


def _is_free_or_ours(name: str) -> bool:
    try:
        return pwd.getpwnam(name).pw_gecos == MARK
    except KeyError:
        return True


class SeatSpawner(LocalProcessSpawner):
    """A local process with limits: each of its processes and kernels inherits them."""

    def make_preexec_fn(self, name):
        """Set the limits while still root, then become the learner."""
        become = super().make_preexec_fn(name)
        memory = self.mem_limit

        def prepare():
            os.umask(0o077)
            os.nice(BUSY)
            resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))
            resource.setrlimit(resource.RLIMIT_NPROC, (PROCESSES, PROCESSES))
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            become()

        return prepare


def _close_home(spawner) -> None:
    home = Path(pwd.getpwnam(spawner.user.name).pw_dir)
    home.chmod(0o700)


def _card(spawner) -> str:
    """Return which GPU a seat gets: learners take turns in the order of the seats file."""
    return str(list(seats.read_seats(SEATS)).index(spawner.user.name) % int(GPUS))


def _go_first() -> None:
    """Put the hub before its learners on kernels that weigh sessions, where nice() alone does nothing."""
    with suppress(OSError):
        Path("/proc/self/autogroup").write_text(str(-BUSY))


def _git_config() -> str:
    """Let learners clone a folder that is not theirs: git refuses that unless it is told."""
    path = STATE / "gitconfig"
    path.write_text(f"[safe]\n\tdirectory = {CLONE}\n\tdirectory = {CLONE}/.git\n")
    path.chmod(0o644)
    return str(path)


def _ready() -> None:
    """Stop with one sentence where the hub could start but nobody could log in."""
    if os.geteuid() != 0:
        sys.exit("The hub makes an account for each seat, so root must start it: use sudo.")
    if not re.fullmatch(r"[1-9]\d*[KMGT]", MEMORY):
        sys.exit(f"COURSE_HUB_MEMORY is a number with K, M, G or T, such as 3G, not {MEMORY!r}.")
    if not (THREADS.isdecimal() and int(THREADS) and GPUS.isdecimal()):
        sys.exit("COURSE_HUB_THREADS is 1 or more, and COURSE_HUB_GPUS 0 or more.")
    os.umask(0o077)  # what the hub writes, learners do not read
    STATE.mkdir(parents=True, exist_ok=True)
    STATE.chmod(0o711)
    try:
        seats.read_seats(SEATS)
    except seats.SeatsError as error:
        sys.exit(str(error))


_ready()
_go_first()
SOURCE = CLONE if "://" in CLONE else f"file://{CLONE}"
PULL = urlencode({"repo": SOURCE, "branch": BRANCH, "targetpath": FOLDER, "urlpath": FIRST})

c = get_config()  # noqa: F821 (JupyterHub defines it)

c.JupyterHub.bind_url = os.environ.get("COURSE_HUB_URL", "http://:8000")
c.JupyterHub.ssl_cert = os.environ.get("COURSE_HUB_CERT", "")
c.JupyterHub.ssl_key = os.environ.get("COURSE_HUB_KEY", "")
c.JupyterHub.db_url = f"sqlite:///{STATE / 'hub.sqlite'}"
c.JupyterHub.cookie_secret_file = str(STATE / "cookie_secret")
c.ConfigurableHTTPProxy.pid_file = str(STATE / "proxy.pid")
c.JupyterHub.concurrent_spawn_limit = 0  # a whole room arrives at once
c.JupyterHub.authenticator_class = SeatsAuthenticator
c.JupyterHub.spawner_class = SeatSpawner

c.Authenticator.allow_all = True  # whoever has a line in the seats file
c.LocalAuthenticator.create_system_users = True
c.LocalAuthenticator.add_user_cmd = [
    *("useradd", "--create-home", "--user-group", "--shell", "/bin/bash"),
    *("--base-dir", HOMES, "--comment", MARK),
]

c.Spawner.cmd = [sys.executable, "-m", "jupyterhub.singleuser"]
c.Spawner.pre_spawn_hook = _close_home
c.Spawner.default_url = f"/git-pull?{PULL}"
c.Spawner.mem_limit = MEMORY
c.Spawner.start_timeout = 180
c.Spawner.http_timeout = 180
c.Spawner.environment = {
    "OMP_NUM_THREADS": THREADS,
    "GIT_CONFIG_SYSTEM": _git_config(),
    # Sockets of kernels lie here, and a socket's path is short.
    "JUPYTER_RUNTIME_DIR": lambda spawner: f"{HOMES}/{spawner.user.name}/.run",
    **({"CUDA_VISIBLE_DEVICES": _card} if int(GPUS) else {}),
}
c.Spawner.args = [
    "--KernelManager.transport=ipc",  # over TCP every account could read every kernel's output
    "--MappingKernelManager.cull_idle_timeout=3600",
    "--MappingKernelManager.cull_interval=300",
    "--ServerApp.shutdown_no_activity_timeout=7200",
]
