"""train.slurm on a real Slurm of one node: a cancelled job ends, one whose time is up goes on later."""

import getpass
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import support
from harness import ROOT

pytestmark = [pytest.mark.everywhere, pytest.mark.serial]

FOLDER = ROOT / "handbook" / "templates"
NEEDED = ("slurmctld", "slurmd", "sbatch", "srun", "scancel", "scontrol")
CONFIGURATION = """\
ClusterName=private
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller}
SlurmdPort={node}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/none
CredType=cred/none
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
MpiDefault=none
ReturnToService=2
KillWait=5
GresTypes=gpu
NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus} Gres=gpu:2
PartitionName=main Nodes={host} Default=YES MaxTime=INFINITE State=UP
"""


class Slurm:
    """A private Slurm controller and node, with ports, files and processes of their own."""

    def __init__(self, folder):
        self.folder = folder
        for name in ("state", "spool", "gpu0", "gpu1"):  # a job gets two "GPUs", which are files
            (folder / name).mkdir() if name[0] == "s" else (folder / name).touch()
        with socket.socket() as one, socket.socket() as other:
            one.bind(("127.0.0.1", 0)), other.bind(("127.0.0.1", 0))
            ports = {"controller": one.getsockname()[1], "node": other.getsockname()[1]}
        host = socket.gethostname().partition(".")[0]
        cpus, user = os.cpu_count(), getpass.getuser()
        text = CONFIGURATION.format(folder=folder, host=host, cpus=cpus, user=user, **ports)
        (folder / "slurm.conf").write_text(text)
        (folder / "gres.conf").write_text(f"Name=gpu File={folder}/gpu[0-1]\n")
        (folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")  # asks nothing of systemd
        path = [str(Path(sys.executable).parent), os.environ["PATH"], "/usr/sbin"]
        self.environment = {name: value for name, value in os.environ.items() if "SLURM" not in name}
        self.environment |= {
            "SLURM_CONF": f"{folder}/slurm.conf",
            "PATH": os.pathsep.join(path),
            "OMP_NUM_THREADS": "1",
        }
        self.daemons = []
        for name in ("slurmctld", "slurmd"):
            with (folder / f"{name}.log").open("w") as log:
                command = [name, "-D", "-f", f"{folder}/slurm.conf"]
                self.daemons.append(subprocess.Popen(command, env=self.environment, stdout=log, stderr=log))

    def __call__(self, *words):
        """Run a Slurm command and return its output."""
        done = subprocess.run(
            [str(word) for word in words],
            cwd=self.folder, env=self.environment, capture_output=True, text=True, timeout=60,
        )  # fmt: skip
        assert done.returncode == 0, f"{words}: {done.stderr}\n{self.logs()}"
        return done.stdout.strip()

    def logs(self):
        return "\n".join(path.read_text() for path in sorted(self.folder.glob("*.log")))

    def until(self, found, seconds=240):
        """Call ``found`` until it returns something true; return that. Fail after ``seconds``."""
        end = time.monotonic() + seconds
        while not (seen := found()):
            assert time.monotonic() < end, self.logs()
            assert all(daemon.poll() is None for daemon in self.daemons), self.logs()
            time.sleep(0.2)
        return seen

    def job(self, number):
        """Return Slurm's record of a job as a dict."""
        return dict(re.findall(r"(\w+)=(\S+)", self("scontrol", "show", "job", number)))

    def close(self):
        for daemon in reversed(self.daemons):
            daemon.send_signal(signal.SIGTERM)
            try:
                daemon.wait(20)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()


@pytest.fixture
def slurm(tmp_path):
    path = os.pathsep.join([os.environ["PATH"], "/usr/sbin"])
    if missing := [name for name in NEEDED if not shutil.which(name, path=path)]:
        support.skip(f"{', '.join(missing)} not found: apt-get install slurm-wlm", "2027-11-30", missing=True)
    shutil.copy(FOLDER / "train_ddp.py", tmp_path)
    own = Slurm(tmp_path)
    try:
        own.until(lambda: "idle" in own("sinfo", "--noheader", "--format=%T"), 60)
        yield own
    finally:
        own.close()


def test_when_the_time_is_up_a_job_goes_on_later_and_a_cancelled_one_stays_cancelled(slurm):
    asked = ("--gpus-per-node=2", "--cpus-per-task=2", "--time=30", "--signal=B:USR1@45")
    words = ("--epochs", 1000, "--log-every", 50)
    number = slurm("sbatch", "--parsable", *asked, FOLDER / "train.slurm", *words)
    log = slurm.folder / f"train-{number}.log"

    def said(pattern):
        return re.search(pattern, log.read_text()) if log.exists() else None

    try:
        slurm.until(lambda: said("epoch 1: loss"))
        slurm("scontrol", "update", f"JobId={number}", "TimeLimit=1")  # now it is up in a minute
        slurm.until(lambda: said("the time is up: back into the queue"))
        slurm.until(lambda: slurm.job(number)["JobState"] == "PENDING")
        assert slurm.job(number)["Restarts"] == "1"
        # Slurm would wait for two minutes before it starts the job again, with a minute to live.
        slurm("scontrol", "update", f"JobId={number}", "StartTime=now", "TimeLimit=30")
        done = slurm.until(lambda: said(r"start 1 on 1 nodes[\s\S]* (\d+) epochs are done"))[1]
        assert int(done) >= 2
        slurm.until(lambda: said(rf"epoch {int(done) + 1}: loss"))
        slurm("scancel", number)
        slurm.until(lambda: slurm.job(number)["JobState"] == "CANCELLED")
        time.sleep(5)
        job = slurm.job(number)
        assert (job["JobState"], job["Restarts"]) == ("CANCELLED", "1")
        assert log.read_text().count("back into the queue") == 1
    finally:
        if slurm.job(number)["JobState"] != "CANCELLED":
            slurm("scontrol", "update", f"JobId={number}", "Requeue=0")
            slurm("scancel", "--signal=KILL", "--full", number)
