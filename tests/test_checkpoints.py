"""What lessons 06, 10 and 11 save: 500 wrong bits and 100 cuts in each, and wrong weights are never taken."""

import itertools
import random
import warnings

import pytest
import torch
import torch.distributed.checkpoint as dcp
from torch import nn

from course_lessons.shared import checkpoint

BITS = "a wrong bit (5 of 6) or a cut in what {}"


def spoilt(whole: bytes, flips: int = 500, cuts: int = 100):
    """Yield damaged copies of the bytes: ``flips`` with one bit flipped, ``cuts`` truncated."""
    draw = random.Random(0)
    for _ in range(flips):
        data = bytearray(whole)
        data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
        yield bytes(data)
    for _ in range(cuts):
        yield whole[: draw.randrange(len(whole))]


def same(net: nn.Module, saved: dict[str, torch.Tensor]) -> bool:
    return all(torch.equal(value, saved[key]) for key, value in net.state_dict().items())


@pytest.mark.slow
def test_a_wrong_bit_or_a_cut_in_the_newest_leads_to_the_one_before(tmp_path, capsys):
    states = []
    for epochs in (1, 2):
        net = nn.Linear(20, 10)
        checkpoint.save(tmp_path, epochs, net=net)
        states.append({key: value.clone() for key, value in net.state_dict().items()})
    last, previous = tmp_path / "last.pt", tmp_path / "previous.pt"
    whole, before = last.read_bytes(), previous.read_bytes()
    taken = {1: 0, 2: 0}
    for data in spoilt(whole):
        last.write_bytes(data)
        previous.write_bytes(before)
        net = nn.Linear(20, 10)
        epochs = checkpoint.resume(tmp_path, net=net)
        assert same(net, states[epochs - 1])
        taken[epochs] += 1
    assert taken[1] > 400  # the others had a wrong bit where it changes nothing
    last.write_bytes(whole[:-1])
    previous.write_bytes(before[:-1])
    with pytest.raises(RuntimeError, match=r"No checkpoint in .* can be read"):
        checkpoint.resume(tmp_path, net=nn.Linear(20, 10))


@pytest.mark.slow
def test_no_bit_in_the_zips_list_of_its_parts_changes_a_weight(tmp_path, capsys):
    """Once one could: `torch.load` took a part that was marked as a folder for zeros."""
    net, last = nn.Linear(4, 2), tmp_path / "last.pt"
    checkpoint.save(tmp_path, 1, net=net)
    whole = last.read_bytes()
    listed = range(whole.index(b"PK\1\2"), len(whole))
    for place, bit in itertools.product(listed, range(8)):
        data = bytearray(whole)
        data[place] ^= 1 << bit
        last.write_bytes(data)
        try:
            _, state = checkpoint.newest_whole(tmp_path, "last.pt")
        except RuntimeError as error:
            assert "No checkpoint" in str(error)
        else:
            assert same(net, state["net"])


def test_without_a_checkpoint_a_training_begins(tmp_path):
    net = nn.Linear(2, 2)
    before = {key: value.clone() for key, value in net.state_dict().items()}
    assert checkpoint.resume(tmp_path / "none", net=net) == 0
    assert same(net, before)


@pytest.mark.parametrize("moment", ["fsync", "replace"])
def test_a_save_that_dies_leaves_a_whole_one(tmp_path, monkeypatch, moment):
    checkpoint.save(tmp_path, 1, net=nn.Linear(2, 2))
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint.os, moment, lambda *_: pytest.fail("killed"))
        with pytest.raises(pytest.fail.Exception):
            checkpoint.save(tmp_path, 2, net=nn.Linear(2, 2))
    assert checkpoint.resume(tmp_path, net=nn.Linear(2, 2)) == 1
    checkpoint.save(tmp_path, 2, net=nn.Linear(2, 2))
    assert checkpoint.resume(tmp_path, net=nn.Linear(2, 2)) == 2


def test_a_distributed_checkpoint_with_a_wrong_bit_is_refused(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it says that this process is alone
        dcp.save({"net": nn.Linear(20, 10).state_dict()}, checkpoint_id=tmp_path, no_dist=True)
    with pytest.raises(RuntimeError, match="SHA256SUMS, which is written last"):
        checkpoint.verify(tmp_path)
    checkpoint.seal(tmp_path)
    checkpoint.verify(tmp_path)
    files = sorted(path for path in tmp_path.iterdir() if path.is_file())
    assert {".metadata", "SHA256SUMS", "__0_0.distcp"} <= {path.name for path in files}
    for path in files:
        whole = path.read_bytes()
        for data in spoilt(whole, 170, 34):
            path.write_bytes(data)
            with pytest.raises(RuntimeError, match=r"is damaged: |is not whole: "):
                checkpoint.verify(tmp_path)
        path.unlink()
        with pytest.raises(RuntimeError, match=r"is damaged: |is not whole: "):
            checkpoint.verify(tmp_path)
        path.write_bytes(whole)
    checkpoint.verify(tmp_path)
