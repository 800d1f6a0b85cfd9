"""Beside a real accelerator the simulated device stays out of the process, and is reached in another."""

import pytest
from support import python

SENTENCE = "This process uses {}. PyTorch trains on one kind of accelerator in a process"
pytestmark = pytest.mark.slow  # each starts a process or two
STARTS = "A second process with the simulated GPU starts: some seconds, once.\n"


def test_a_real_accelerator_keeps_it_out_where_it_is_in_use_or_named():
    out = python(
        """
        import torch
        import simgpu
        for real in (torch.cuda, torch.xpu):
            assert simgpu.unavailable_reason() is None
            real.is_initialized, before = lambda: True, real.is_initialized
            print(simgpu.unavailable_reason())
            try:
                simgpu.enable()
            except RuntimeError as error:
                assert str(error) == simgpu.unavailable_reason()
            real.is_initialized = before
        for device in ("cpu", "meta", "mps", "cpu"):
            print(device, simgpu.disable_for(device), bool(simgpu.unavailable_reason()))
        print(torch._C._get_privateuse1_backend_name())
        """
    )
    cuda, xpu, *named = out.splitlines()
    assert SENTENCE.format("cuda") in cuda and SENTENCE.format("xpu") in xpu
    assert named[:4] == ["cpu None False", "meta None False", "mps None True", "cpu None False"]
    assert named[4:] == ["privateuseone"], "the device was registered"


def test_once_registered_it_is_too_late_and_a_failing_backward_says_so():
    out = python(
        """
        import torch
        import simgpu
        simgpu.enable()
        print(simgpu.disable_for("cuda"), simgpu.unavailable_reason())

        def as_on_cuda(gradient):  # what PyTorch says there
            raise RuntimeError("opt_ready_stream && opt_parent_stream INTERNAL ASSERT FAILED at engine.cpp")

        x = torch.ones(2, requires_grad=True)
        x.register_hook(as_on_cuda)
        try:
            x.sum().backward()
        except RuntimeError as error:
            print(error)
        """
    )
    first, second = out.splitlines()
    assert "restart the kernel) to train on cuda. None" in first
    assert "start a new one" in second and "INTERNAL" not in second


def test_a_function_and_what_it_uses_travel_by_value_and_the_answer_comes_back():
    out = python(
        """
        import os
        import torch
        import simgpu
        from simgpu import worker
        factor = 3

        def gradient(x):
            import simgpu
            device = simgpu.first()
            print("there", device)
            weight = torch.ones(3, device=device, requires_grad=True)
            (weight * x.to(device) * factor).sum().backward()
            return weight.grad.cpu()

        def fails():
            raise KeyError("lost")

        assert not worker.needed() and worker.run_in_worker(os.getpid)() == os.getpid()
        simgpu.disable_for("mps")
        assert worker.needed() and worker.unavailable_reason() is None
        print(worker.call(gradient, torch.arange(3.0)).tolist(), simgpu.enabled())
        try:
            worker.call(fails)
        except KeyError as error:
            print(repr(error))
        device = torch.device("cuda:0")

        def where():
            return str(device), str(torch.ones(2, device=device).device)

        print(*worker.call(where))

        def placed(*how):  # what a tensor of a real device becomes there
            tensor = worker._tensor(torch.ones(2), *how)
            is_parameter = isinstance(tensor, torch.nn.Parameter)
            return tensor.device.type, tensor.requires_grad, is_parameter, tensor.is_leaf

        for how in ((True, True), (False, True), (True, False), (False, False)):
            assert worker.call(placed, *how) == ("sim", *how, True)
        """
    )
    said = "there sim:0\n[0.0, 3.0, 6.0] False\nKeyError('lost')\nsim:0 sim:0\n"
    assert out == STARTS + said


def test_what_ends_the_process_or_does_not_travel_is_said_and_the_next_call_works():
    out = python(
        """
        import os, threading, time
        import simgpu
        from simgpu import worker
        simgpu.disable_for("mps")
        lock = threading.Lock()

        def attempt(function, *arguments):
            try:
                print(worker.call(function, *arguments))
            except worker.WorkerError as error:
                print(error)

        for function in (lambda: os._exit(3), lambda: lock.locked(), lambda: (x for x in ()), lambda: 7):
            attempt(function)
        worker.LIMIT_SECONDS = 1.0
        attempt(time.sleep, 60)
        """
    )
    assert out.count(STARTS) == 2  # again after the first has ended
    ended, not_sent, not_returned, well, slow = out.replace(STARTS, "").splitlines()
    assert ended == "the process with the simulated device ended" and "ended" in slow
    assert "pickle" in not_sent and "pickle" in not_returned and well == "7"
