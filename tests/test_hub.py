"""The workshop's hub: its seats, its settings, and twelve learners at once on a real one.

The real one needs root, because each seat is a Unix account; the accounts are removed again.
"""

from __future__ import annotations

import importlib.util
import json
import os
import pwd
import re
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from types import SimpleNamespace
from urllib.parse import parse_qs, urlsplit

import nbformat
import pytest
import support
import yaml
from harness import ROOT, TABLE, code_cells, working_copy

from course_utils.course import load_course
from course_utils.exercises import lesson
from course_utils.exercises.result import RESULT_MIME
from tools.authoring.solve import solved
from tools.classroom.class_progress import collect

HUB = ROOT / "workshop" / "hub"
LEARNERS = 12
LESSON = "01"
GIB = 3  # the memory limit of each process of a learner

spec = importlib.util.spec_from_file_location("seats", HUB / "seats.py")
seats = importlib.util.module_from_spec(spec)
spec.loader.exec_module(seats)


# The seats file


def test_seats_are_made_once_and_read_back(tmp_path, capsys):
    path = tmp_path / "seats.csv"
    assert seats.main(["12", "--output", str(path)]) == 0
    made = seats.read_seats(path)
    assert list(made) == [f"seat-{i:02}" for i in range(1, 13)]
    assert len(set(made.values())) == 12
    assert all(seats.who(path, name, password) == name for name, password in made.items())
    assert "12 seats" in capsys.readouterr().out
    assert seats.main(["12", "--output", str(path)]) == 2
    assert "is there already" in capsys.readouterr().err
    assert seats.read_seats(path) == made


def test_a_seats_file_is_only_its_owners(tmp_path):
    if os.name == "nt":
        support.skip("Windows has no mode bits for everyone", "2027-11-30")
    path = tmp_path / "seats.csv"
    seats.write_seats(path, seats.make_seats(1))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.chmod(0o644)
    with pytest.raises(seats.SeatsError, match="everyone can read"):
        seats.read_seats(path)


def test_only_its_own_password_opens_a_seat(tmp_path):
    path = tmp_path / "seats.csv"
    seats.write_seats(path, {"ana": "long-enough", "ben": "also-long-enough"})
    assert seats.who(path, "ana", "long-enough") == "ana"
    for name, password in (
        ("ana", "also-long-enough"),
        ("ana", ""),
        ("ana", "long-enough "),
        ("eve", "long-enough"),
        ("eve", ""),
        ("", ""),
    ):
        assert seats.who(path, name, password) is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "has no seats"),
        ("name,password\n", "has no seats"),
        ("ana,long-enough\n", "has no seats"),
        ("name;password\nana;long-enough\n", "is no seat's name"),
        ("name,password\nana,short\n", "under 8 characters"),
        ("name,password\nana\n", "under 8 characters"),
        ("name,password\nAna Lu,long-enough\n", "is no seat's name"),
        ("name,password\n../ana,long-enough\n", "is no seat's name"),
        ("name,password\n-ana,long-enough\n", "is no seat's name"),
        ("name,password\nana,long-enough\nana,other-long\n", "stands there twice"),
    ],
)
def test_seats_that_cannot_be_used_are_refused(tmp_path, text, said):
    path = tmp_path / "seats.csv"
    path.write_text(text, encoding="utf-8")
    path.chmod(0o600)
    with pytest.raises(seats.SeatsError, match=said):
        seats.read_seats(path)


def test_missing_seats_and_wrong_counts_say_what_to_do(tmp_path, capsys):
    with pytest.raises(seats.SeatsError, match=r"seats\.py makes one"):
        seats.read_seats(tmp_path / "none.csv")
    for words in (["0"], ["1000"], ["3", "--prefix", "Seat "]):
        assert seats.main([*words, "--output", str(tmp_path / "x.csv")]) == 2
        assert len(capsys.readouterr().err.splitlines()) == 1


# Zero to JupyterHub


@pytest.fixture(scope="module")
def values():
    return yaml.safe_load((HUB / "values.yaml").read_text(encoding="utf-8"))


@pytest.mark.everywhere  # where JupyterHub is installed
def test_the_cluster_logs_in_by_the_same_seats(values, tmp_path, monkeypatch):
    path = tmp_path / "seats.csv"
    seats.write_seats(path, {"ana": "long-enough"})
    monkeypatch.setitem(sys.modules, "seats", seats)
    (snippet,) = values["hub"]["extraConfig"].values()
    mounted = values["hub"]["extraFiles"]["seats_list"]["mountPath"]
    assert mounted in snippet
    c = SimpleNamespace(JupyterHub=SimpleNamespace(), Authenticator=SimpleNamespace())
    exec(snippet.replace(mounted, str(path)), {"c": c})
    authenticate = c.JupyterHub.authenticator_class().authenticate
    for password, name in (("long-enough", "ana"), ("wrong", None)):
        asked = authenticate(None, {"username": "ana", "password": password})
        with pytest.raises(StopIteration) as done:
            asked.send(None)
        assert done.value.value == name


def test_the_cluster_has_a_profile_with_a_gpu_and_limits(values):
    user = values["singleuser"]
    default, gpu = user["profileList"]
    assert default["default"]
    assert gpu["kubespawner_override"]["extra_resource_limits"] == {"nvidia.com/gpu": "1"}
    assert user["memory"]["limit"]
    assert user["cpu"]["limit"]
    assert values["cull"]["enabled"]
    assert "dummy" not in (HUB / "values.yaml").read_text(encoding="utf-8").lower()


def test_the_cluster_pulls_this_course_and_opens_its_first_lesson(values):
    course = load_course()
    page = urlsplit(values["singleuser"]["defaultUrl"])
    query = {key: value for key, (value,) in parse_qs(page.query).items()}
    assert page.path == "/git-pull"
    named = f"https://github.com/{course.repository}"
    assert query["repo"] == (named if course.repository else "ADDRESS")
    assert query["branch"] == course.branch
    opened = Path(query["urlpath"].removeprefix("lab/tree/"))
    assert opened.parts[0] == query["targetpath"]
    assert (ROOT / Path(*opened.parts[1:])).is_file()


def test_the_guide_explains_each_setting_and_no_other():
    config = (HUB / "jupyterhub_config.py").read_text(encoding="utf-8")
    guide = (HUB / "README.md").read_text(encoding="utf-8")
    read = set(re.findall(r'environ\.get\("(COURSE_HUB_\w+)"', config))
    assert len(read) >= 10
    assert set(re.findall(r"COURSE_HUB_\w+", guide)) == read


# A real hub


@dataclass
class Room:
    """A running hub, and where its parts lie."""

    url: str
    clone: Path
    homes: Path
    seats: dict[str, str]
    process: subprocess.Popen
    log: Path

    def said(self, lines: int = 40) -> str:
        """Return the end of the hub's log."""
        return "\n".join(self.log.read_text(encoding="utf-8").splitlines()[-lines:])


class Learner:
    """One learner: logs in through the form, then works as JupyterLab does, over HTTP."""

    def __init__(self, room: Room, name: str) -> None:
        import requests

        self.room, self.name = room, name
        self.home = room.homes / name
        self.browser = requests.Session()
        self.kernel = ""

    def log_in(self, password: str) -> int:
        """Fill in the form; return the status of the page that follows."""
        form = f"{self.room.url}/hub/login"
        self.browser.get(form, timeout=60)
        data = {"username": self.name, "password": password, "_xsrf": self._xsrf("/hub/")}
        return self.browser.post(form, data=data, timeout=60).status_code

    def _xsrf(self, path: str) -> str:
        return next(c.value for c in self.browser.cookies if c.name == "_xsrf" and c.path == path)

    def start(self) -> str:
        """Start the server, as the browser does after the login; return the page it opens on."""
        self.browser.get(f"{self.room.url}/hub/spawn", timeout=60)
        headers = {"X-XSRFToken": self._xsrf("/hub/"), "Referer": f"{self.room.url}/hub/token"}
        made = self.browser.post(
            f"{self.room.url}/hub/api/users/{self.name}/tokens", headers=headers, timeout=60
        )
        made.raise_for_status()
        self.token = {"Authorization": f"token {made.json()['token']}"}
        wait(lambda: self.model().get("server"), 180, f"{self.name}'s server")
        page = self.browser.get(f"{self.room.url}/user/{self.name}/", timeout=60)
        page.raise_for_status()
        return page.url

    def model(self) -> dict:
        """Return what the hub says of this learner."""
        return self.ask("GET", f"/hub/api/users/{self.name}").json()

    def ask(self, method: str, path: str, **more):
        """Ask the hub or a server by this learner's token, without the browser's cookies."""
        import requests

        address = f"{self.room.url}{path}"
        return requests.request(method, address, headers=self.token, timeout=120, **more)

    def own(self, method: str, path: str, **more):
        """Ask this learner's own server; an error fails the test."""
        answer = self.ask(method, f"/user/{self.name}/api/{path}", **more)
        assert answer.ok, f"{self.name}: {answer.status_code} {answer.text}"
        return answer

    def pull(self, query: dict[str, str]) -> str:
        """Fetch the course as the page that opens first does; return what the puller said."""
        answer = self.ask("GET", f"/user/{self.name}/git-pull/api", params=query)
        assert '"phase": "finished"' in answer.text, answer.text
        return answer.text

    def open(self, path: str) -> None:
        """Open a notebook: a session, and its kernel."""
        body = {"path": path, "name": path, "type": "notebook", "kernel": {"name": "python3"}}
        self.kernel = self.own("POST", "sessions", json=body).json()["kernel"]["id"]

    def run(self, code: str, seconds: float = 300) -> Ran:
        """Run one cell in the learner's kernel, and wait for the reply."""
        with self.channels(seconds) as channel:
            return channel.run(code)

    def channels(self, seconds: float = 300) -> Channel:
        """Connect to the learner's kernel."""
        import websocket

        server = self.room.url.replace("http://", "ws://")
        address = f"{server}/user/{self.name}/api/kernels/{self.kernel}/channels"
        return Channel(websocket.create_connection(address, header=self.token, timeout=seconds))


@dataclass
class Channel:
    """A websocket to a kernel, in Jupyter's messages."""

    socket: object

    def __enter__(self) -> Channel:
        return self

    def __exit__(self, *error: object) -> None:
        self.socket.close()

    def run(self, code: str) -> Ran:
        """Run a cell, and wait until the kernel is idle again."""
        return self.wait(self.ask(code))

    def wait(self, asked: str) -> Ran:
        """Wait for what came of the request ``asked``."""
        ran = Ran()
        while not (ran.status and ran.idle):
            ran.take(json.loads(self.socket.recv()), asked)
        return ran

    def ask(self, code: str) -> str:
        """Send a cell; return the request's id."""
        from jupyter_client.jsonutil import json_default
        from jupyter_client.session import Session

        message = Session().msg("execute_request", {"code": code, "allow_stdin": False})
        self.socket.send(json.dumps(message | {"channel": "shell"}, default=json_default))
        return message["msg_id"]


@dataclass
class Ran:
    """What came back from a cell."""

    status: str = ""
    error: str = ""
    text: str = ""
    results: dict[str, str] = field(default_factory=dict)
    idle: bool = False

    def take(self, message: dict, asked: str) -> None:
        """Take a message in, if it answers the request ``asked``."""
        if message["parent_header"].get("msg_id") != asked:
            return
        content = message["content"]
        match message["msg_type"]:
            case "execute_reply":
                self.status = content["status"]
                self.error = f"{content.get('ename', '')}: {content.get('evalue', '')}"
            case "stream":
                self.text += content["text"]
            case "display_data":
                if result := content["data"].get(RESULT_MIME):
                    self.results[result["exercise"]] = result["outcome"]
            case "status":
                self.idle = self.idle or content["execution_state"] == "idle"


def wait(ready: Callable[[], object], seconds: float, what: str) -> None:
    """Wait until something is so."""
    end = time.monotonic() + seconds
    while not ready():
        assert time.monotonic() < end, f"{what} was not there after {seconds} s"
        time.sleep(0.3)


def needs() -> None:
    """Skip where a real hub cannot be started."""
    until = "2027-11-30"
    if sys.platform != "linux" or os.geteuid() != 0:
        support.skip("the hub makes Unix accounts, so this test needs Linux and root", until)
    for module in ("jupyterhub", "nbgitpuller"):
        if importlib.util.find_spec(module) is None:
            support.skip(f"{module} is not installed", until, missing=True)
    for program in ("configurable-http-proxy", "useradd", "git"):
        if shutil.which(program) is None:
            support.skip(f"there is no {program} on PATH", until, missing=True)


def everyones_python(folder: Path) -> Path:
    """Return a Python that every account can run, with this one's packages.

    This one may lie where only root may look; then it is copied by hard links, which take no room.
    """
    base = Path(sys.base_prefix)
    if not open_to_all(base):
        link(base, folder / "base", "site-packages", "test")
        base = folder / "base"
    env = folder / "env"
    python = base / "bin" / f"python{sys.version_info.major}.{sys.version_info.minor}"
    call(python, "-m", "venv", "--without-pip", env)
    shutil.rmtree(env / "lib")
    for part in ("lib", "etc", "share"):
        source = Path(sys.prefix) / part
        if open_to_all(source):
            (env / part).symlink_to(source)
        else:
            link(source, env / part)
    return env / "bin" / "python"


def open_to_all(path: Path) -> bool:
    """Return whether every account may pass through a folder and those above it."""
    return all(part.stat().st_mode & stat.S_IXOTH for part in (path, *path.parents))


def link(source: Path, target: Path, *without: str) -> None:
    def one(old: str, new: str) -> None:
        try:
            os.link(old, new)
        except OSError:  # another disk
            shutil.copy2(old, new)

    ignored = shutil.ignore_patterns(*without)
    shutil.copytree(source, target, symlinks=True, ignore=ignored, copy_function=one)


def call(*command: object, cwd: Path | None = None) -> str:
    done = subprocess.run([str(w) for w in command], cwd=cwd, capture_output=True, text=True)
    assert done.returncode == 0, f"{command} failed:\n{done.stdout}{done.stderr}"
    return done.stdout


def free_ports(count: int) -> list[int]:
    with_port = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [server.getsockname()[1] for server in with_port]
    for server in with_port:
        server.close()
    return ports


def processes(uids: set[int]) -> list[Path]:
    """Return the folders in /proc of the processes of some accounts."""
    found = []
    for folder in Path("/proc").iterdir():
        try:
            if folder.name.isdigit() and folder.stat().st_uid in uids:
                found.append(folder)
        except FileNotFoundError:
            continue
    return found


def memory(uid: int) -> int:
    """Return an account's memory in bytes, its share of what processes hold together counted once."""
    total = 0
    for folder in processes({uid}):
        try:
            lines = (folder / "smaps_rollup").read_text().splitlines()
        except (FileNotFoundError, ProcessLookupError):
            continue
        total += sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))
    return total


@pytest.fixture(scope="module")
def room() -> Iterator[Room]:
    """A hub with the shipped configuration, on ports of its own, and twelve seats."""
    needs()
    folder = Path(tempfile.mkdtemp(prefix="course-hub-", dir="/tmp"))
    folder.chmod(0o755)
    for name in ("homes", "clone", "state"):
        (folder / name).mkdir(mode=0o755)
    chosen = seats.make_seats(LEARNERS, f"ct{os.getpid()}-")
    seats.write_seats(folder / "state" / "seats.csv", chosen)
    room = start(folder, chosen)
    try:
        wait(lambda: answers(room), 120, "the hub")
        yield room
    finally:
        stop(room)
        shutil.rmtree(folder)


def start(folder: Path, chosen: dict[str, str]) -> Room:
    """Start the hub; nothing of it is on a fixed port."""
    port, hub, api = free_ports(3)
    url = f"http://127.0.0.1:{port}"
    config = folder / "config.py"
    config.write_text(
        f"load_subconfig({str(HUB / 'jupyterhub_config.py')!r})\n"
        f"c = get_config()\nc.JupyterHub.hub_port = {hub}\n"
        f"c.ConfigurableHTTPProxy.api_url = 'http://127.0.0.1:{api}'\n",
        encoding="utf-8",
    )
    unwanted = ("PYTHONPATH", "COURSE_", "JUPYTER")
    env = {k: v for k, v in os.environ.items() if not k.startswith(unwanted)}
    env |= {
        "COURSE_HUB_STATE": str(folder / "state"),
        "COURSE_HUB_HOMES": str(folder / "homes"),
        "COURSE_HUB_CLONE": str(working_copy(folder / "clone")),
        "COURSE_HUB_MEMORY": f"{GIB}G",
        "COURSE_HUB_URL": url,
    }
    command = [str(everyones_python(folder)), "-m", "jupyterhub", "-f", str(config)]
    if (folder / "base").is_dir():  # its own libpython, not the one where only root may look
        env["LD_LIBRARY_PATH"] = str(folder / "base" / "lib")
    log = folder / "hub.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            command, cwd=folder, env=env, stdout=out, stderr=out, start_new_session=True
        )
    return Room(url, folder / "clone", folder / "homes", chosen, process, log)


def answers(room: Room) -> bool:
    import requests

    assert room.process.poll() is None, room.said()
    try:
        return requests.get(f"{room.url}/hub/api/", timeout=5).ok
    except requests.ConnectionError:
        return False


def stop(room: Room) -> None:
    """Stop the hub, then whatever of its learners is left, and remove the accounts it made."""
    room.process.send_signal(signal.SIGTERM)
    try:
        room.process.wait(60)
    except subprocess.TimeoutExpired:
        room.process.kill()
    made = [entry for entry in pwd.getpwall() if entry.pw_name in room.seats]
    for folder in processes({entry.pw_uid for entry in made}):
        os.kill(int(folder.name), signal.SIGKILL)
    for entry in made:
        wait(lambda uid=entry.pw_uid: not processes({uid}), 20, f"the end of {entry.pw_name}")
        call("userdel", "--remove", entry.pw_name)


@pytest.fixture(scope="module")
def learners(room) -> list[Learner]:
    """Twelve learners who have logged in, whose servers run and who have pulled the course."""
    return list(at_once(lambda name: arrive(room, name), room.seats))


def at_once(do: Callable, each: object) -> list:
    with ThreadPoolExecutor(LEARNERS) as pool:
        return list(pool.map(do, each))


def arrive(room: Room, name: str) -> Learner:
    """Log in, and do what the page does that opens first: pull the course."""
    learner = Learner(room, name)
    assert learner.log_in(room.seats[name]) == 200, room.said()
    began = time.monotonic()
    page = urlsplit(learner.start())
    learner.seconds = {"server": time.monotonic() - began}
    assert page.path == f"/user/{name}/git-pull"
    query = {key: value for key, (value,) in parse_qs(page.query).items()}
    began = time.monotonic()
    learner.pull(query)
    learner.seconds["pull"] = time.monotonic() - began
    first = query["urlpath"].removeprefix("lab/tree/")
    assert learner.own("GET", f"contents/{first}").json()["type"] == "notebook"
    assert learner.ask("GET", f"/user/{name}/{query['urlpath']}").status_code == 200
    return learner


def work_through(learner: Learner) -> dict[str, str]:
    """Run a lesson as it is in the learner's folder, every exercise answered right."""
    entry = load_course().lesson(LESSON)
    path = f"pytorch-gpu-course/notebooks/{entry.file}"
    began = time.monotonic()
    raw = learner.own("GET", f"contents/{path}").json()["content"]
    nb = solved(nbformat.from_dict(raw), lesson(LESSON))
    learner.open(path)
    results: dict[str, str] = {}
    with learner.channels() as channel:
        for cell in code_cells(nb):
            ran = channel.run(cell.source)
            assert ran.status == "ok", f"{learner.name}, cell {cell.id}: {ran.error}"
            results |= ran.results
    body = {"type": "notebook", "format": "json", "content": nb}
    learner.own("PUT", f"contents/{path}", json=body)
    learner.seconds["lesson"] = time.monotonic() - began
    return results


@pytest.mark.everywhere
@pytest.mark.serial
def test_twelve_learners_work_at_once(room, learners, record_property):
    results = at_once(work_through, learners)
    expected = {exercise.id: "right" for exercise in lesson(LESSON)}
    assert [r for r in results if r != expected] == []
    for learner in learners:
        kept = learner.home / ".pytorch-gpu-course" / "progress.jsonl"
        lines = [json.loads(line) for line in kept.read_text(encoding="utf-8").splitlines()]
        right = {line["exercise"] for line in lines if line.get("outcome") == "right"}
        assert right == set(expected), learner.name
    assert "not recognized" not in room.log.read_text(encoding="utf-8")  # a misspelt setting
    report = collect(room.homes)
    assert len(report.learners) == LEARNERS
    assert report.left_out == []
    sizes = [memory(pwd.getpwnam(learner.name).pw_uid) / 2**20 for learner in learners]
    assert max(sizes) < GIB * 2**10
    title = f"{TABLE}the hub: {len(learners)} of {LEARNERS} learners finished lesson {LESSON}"
    record_property(title, f"memory each  {median(sizes):5.0f} MiB, at most {max(sizes):.0f} MiB")
    for part in ("server", "pull", "lesson"):
        times = [learner.seconds[part] for learner in learners]
        record_property(title, f"{part:12} {median(times):5.1f} s, at most {max(times):.1f} s")


@pytest.mark.everywhere
@pytest.mark.serial
def test_no_learner_reaches_anothers_work(room, learners):
    ana, ben = learners[:2]
    if not ana.kernel:
        ana.open("pytorch-gpu-course/notebooks/00_start_here.ipynb")
    secret = ben.home / "pytorch-gpu-course" / "notebooks" / "secret.txt"
    body = {"type": "file", "format": "text", "content": "mine"}
    ben.own("PUT", f"contents/{secret.relative_to(ben.home)}", json=body)
    assert secret.read_text() == "mine"
    asked = ana.ask("GET", f"/user/{ben.name}/api/contents/{secret.relative_to(ben.home)}")
    assert asked.status_code == 403
    assert ana.ask("GET", f"/hub/api/users/{ben.name}").status_code in (403, 404)
    assert ana.ask("POST", f"/hub/api/users/{ben.name}/tokens").status_code in (403, 404)
    for path in (secret, ben.home, room.homes.parent / "state" / "seats.csv"):
        ran = ana.run(
            f"import os; os.listdir({str(path)!r}) if {path.is_dir()} else open({str(path)!r})"
        )
        assert ran.error.startswith("PermissionError"), (path, ran)
    # Over TCP, anybody on the machine could subscribe to what a kernel prints.
    how = "from ipykernel.connect import get_connection_info as get; print(get(unpack=True)['transport'])"
    assert ana.run(how).text == "ipc\n"
    pid = processes({pwd.getpwnam(ben.name).pw_uid})[0].name
    assert ana.run(f"open('/proc/{pid}/environ').read()").error.startswith("PermissionError")


@pytest.mark.everywhere
@pytest.mark.serial
def test_a_wrong_password_and_an_account_of_the_server_stay_outside(room):
    first, second, *_ = room.seats
    assert Learner(room, first).log_in("guess") == 403
    assert Learner(room, first).log_in(room.seats[second]) == 403
    assert Learner(room, "root").log_in("guess") == 403
    seats_file = room.homes.parent / "state" / "seats.csv"
    before = seats_file.read_text(encoding="utf-8")
    try:
        seats_file.write_text(f"{before}daemon,long-enough-1\n", encoding="utf-8")
        assert Learner(room, "daemon").log_in("long-enough-1") == 403
        assert "rename the seat" in room.said()
        seats_file.write_text(f"{before}late,short\n", encoding="utf-8")
        assert Learner(room, first).log_in(room.seats[first]) == 403
        assert "the password of late has under 8 characters" in room.said()
    finally:
        seats_file.write_text(before, encoding="utf-8")


@pytest.mark.everywhere
@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("COURSE_HUB_SEATS", "none.csv", "seats.py makes one"),
        ("COURSE_HUB_MEMORY", "lots", "such as 3G"),
        ("COURSE_HUB_THREADS", "0", "1 or more"),
        ("COURSE_HUB_GPUS", "two", "0 or more"),
    ],
)
def test_a_hub_that_nobody_could_use_does_not_start(tmp_path, name, value, said):
    needs()
    seats.write_seats(tmp_path / "seats.csv", seats.make_seats(1))
    env = os.environ | {"COURSE_HUB_STATE": str(tmp_path), name: value}
    command = [sys.executable, "-m", "jupyterhub", "-f", str(HUB / "jupyterhub_config.py")]
    done = subprocess.run(
        command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60
    )
    assert done.returncode != 0
    assert said in done.stderr
    assert "Traceback" not in done.stderr


LOOP = "while True:\n    pass"
FILL = """
import torch
held = []
while True:
    held.append(torch.ones(2**26))
"""
FORKS = """
import subprocess
crowd = []
try:
    while True:
        crowd.append(subprocess.Popen(["sleep", "600"]))
finally:
    for one in crowd:
        one.kill()
        one.wait()
"""


@pytest.mark.everywhere
@pytest.mark.serial
def test_one_learners_accident_does_not_stop_another(room, learners, record_property):
    looping, filling, forking, quiet, *_ = learners
    for learner in (looping, filling, forking, quiet):
        if not learner.kernel:
            learner.open("pytorch-gpu-course/notebooks/00_start_here.ipynb")
    with looping.channels() as endless:
        asked = endless.ask(LOOP)
        with ThreadPoolExecutor(2) as pool:
            full = pool.submit(filling.run, FILL)
            crowd = pool.submit(forking.run, FORKS)
            times = []
            while not (full.done() and crowd.done()) or len(times) < 3:
                times.append(save_and_run(quiet))
        assert "memory" in full.result().error, full.result()
        assert crowd.result().error.startswith("BlockingIOError"), crowd.result()
        looping.own("POST", f"kernels/{looping.kernel}/interrupt")
        assert endless.wait(asked).error.startswith("KeyboardInterrupt")
    assert max(times) < 15
    record_property(
        f"{TABLE}the hub: a loop, a full memory and a crowd of processes beside a quiet learner",
        f"a cell and a save took {median(times):.2f} s, at most {max(times):.2f} s ({len(times)} times)",
    )
    for learner in (looping, filling, forking):  # their kernels and what they hold are still there
        assert learner.run("print(1 + 1)").text == "2\n"
    assert int(filling.run("print(len(held))").text) > 1


def save_and_run(learner: Learner) -> float:
    """Save a file and run a cell; return the seconds it took."""
    began = time.monotonic()
    assert learner.run("print(sum(range(10**6)))").text == "499999500000\n"
    body = {"type": "file", "format": "text", "content": "kept"}
    learner.own("PUT", "contents/kept.txt", json=body)
    return time.monotonic() - began
