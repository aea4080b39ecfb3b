"""Memory of devices: what happens without enough of it, and that it is given back.

The device is the pretend accelerator of tests/support/pretend, which has as much memory as a test says.
"""

import gc
import sys
from contextlib import closing

import pytest
import torch

from mnemos.cli.app import main
from mnemos.common.devices import out_of_memory
from mnemos.common.shortage import shortage
from mnemos.engines.engine import ClientError
from mnemos.engines.vmap import VmapRunner
from mnemos.errors import ConfigError, MnemosError
from mnemos.federation.federation import Federation
from mnemos.runs.run import Run
from mnemos.screens.guard import BoundsCheck
from support import pretend
from support.lenets import CLIENTS, Noise, lenet
from support.play import play, small
from support.processes import wait_for

pretend.install()
NO_ROOM = "pretend out of memory. Tried to allocate 1.00 GiB. Device 0 has a total capacity of 2.00 GiB"


# Sentences.


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (
            torch.OutOfMemoryError(
                "CUDA out of memory. Tried to allocate 20.00 MiB. GPU 1 has a total capacity of 39.39 GiB of "
                "which 5.12 MiB is free."
            ),
            "cuda:1 has no memory left (Tried to allocate 20.00 MiB)",
        ),
        (
            torch.OutOfMemoryError("HIP out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total ..."),
            "cuda:0 has no memory left (Tried to allocate 2.00 GiB)",
        ),
        (
            RuntimeError(
                "MPS backend out of memory (MPS allocated: 17.50 GB, other allocations: 1.00 GB, max "
                "allowed: 18.13 GB). Tried to allocate 256.00 MB on private pool. Use ..."
            ),
            "mps has no memory left (Tried to allocate 256.00 MB on private pool)",
        ),
        (torch.OutOfMemoryError("nothing left"), "a device has no memory left (nothing left)"),
    ],
)
def test_the_device_is_named(error, says):
    assert out_of_memory(error) == says
    assert shortage(error) == f"{says}; " + shortage(error).partition("; ")[2]
    assert "engine.device=cpu" in shortage(error)


def test_a_clients_error_that_was_memory_is_a_sentence_too():
    error = ClientError("client 3 failed")
    error.__cause__ = torch.OutOfMemoryError(NO_ROOM)
    assert shortage(error).startswith("pretend:0 has no memory left (Tried to allocate 1.00 GiB); ")
    assert shortage(ClientError("client 3 failed")) is None
    assert shortage(RuntimeError("something else")) is None


def test_no_memory_left_at_the_server_is_a_sentence(tmp_path, monkeypatch, capsys):
    """In the guard, which lays all updates side by side; finished rounds are saved."""
    judge, rounds = BoundsCheck.judge, []

    def without_room(self, *words):
        rounds.append(len(rounds) + 1)
        if rounds[-1] < 3:
            return judge(self, *words)
        with pretend.limit(pretend.allocated(0) + 1000):
            return judge(self, *words)

    monkeypatch.setattr(BoundsCheck, "judge", without_room)
    command = "run --data digits --rounds 4 --device pretend engine.name=serial participation=1.0 --out"
    monkeypatch.setattr(sys, "argv", ["mnemos", *command.split(), str(tmp_path), "partition.clients=8"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 1
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith(f"error: {tmp_path}")
    assert ": pretend:0 has no memory left (Tried to allocate " in error
    assert "a lower participation needs less; finished rounds are saved, and 'mnemos resume " in error
    (path,) = tmp_path.iterdir()
    status = Run.at(path).status
    assert (status.status, status.rounds) == ("failed", 2)
    assert "has no memory left" in status.message


# Chunks that are halved.


def refusing(monkeypatch, refuses):
    """Have a chunk's rows fail for want of memory, as `refuses` of the chunk's clients says."""
    rows, sizes = VmapRunner._rows, []

    def _rows(self, replica, requests):
        sizes.append(len(requests))
        if refuses(sizes):
            raise torch.OutOfMemoryError(NO_ROOM)
        return rows(self, replica, requests)

    monkeypatch.setattr(VmapRunner, "_rows", _rows)
    return sizes


def test_the_chunk_that_failed_is_halved_and_not_more(monkeypatch):
    """A last, smaller chunk: those that are left are halved, later rounds have half of what went well."""
    sizes = refusing(monkeypatch, lambda sizes: sizes == [8, 2])
    experiment = lenet("vmap", options={"chunk": 8})
    with closing(Federation(experiment)) as federation, federation.open() as runner:
        federation.advance(runner)
        assert sizes == [8, 2, 1, 1]
        assert runner.engine.chunk == 4
        federation.advance(runner)
    assert sizes[4:] == [4, 4, 2]


def test_a_chunk_in_the_middle_is_halved(monkeypatch):
    sizes = refusing(monkeypatch, lambda sizes: len(sizes) == 2)
    with (
        closing(Federation(lenet("vmap", options={"chunk": 4}))) as federation,
        federation.open() as runner,
    ):
        federation.advance(runner)
        assert sizes == [4, 4, 2, 2, 2]
        assert runner.engine.chunk == 2


def test_a_single_client_is_tried_once_more_and_then_refused(monkeypatch):
    sizes = refusing(monkeypatch, lambda sizes: sizes[-1] == 1)
    with (
        closing(Federation(lenet("vmap", options={"chunk": 9}))) as federation,
        federation.open() as runner,
        pytest.raises(MnemosError, match=r"^pretend:0 has no memory left \(.*\) for a single client; engine"),
    ):
        federation.advance(runner)
    assert sizes == [9, 1, 1]


MIXED = {"name": "mixed", "of": [{"model": "logistic"}, {"model": {"name": "mlp", "hidden": [8]}}]}


def test_what_one_of_several_models_has_found_is_on_record_and_holds_for_all(monkeypatch):
    """Otherwise a resumed run would have other chunks than one that was never stopped."""
    sizes = refusing(monkeypatch, lambda sizes: len(sizes) == 2)
    experiment = small(model=MIXED, engine={"name": "vmap", "device": "pretend", "chunk": 4})
    with closing(Federation(experiment)) as federation, federation.open() as runner:
        assert runner.engine.chunk == 4
        federation.advance(runner)
        halved = max(sizes[1] // 2, 1)
        assert runner.engine.chunk == 2
        assert {own.engine.chunk for own in runner._runners} == {2}
        assert sizes[2] <= halved
        before = len(sizes)
        federation.advance(runner)
        assert max(sizes[before:]) == 2


def test_several_models_begin_with_the_same_number_of_clients_at_once():
    """The one for which the larger model has room."""
    experiment = small(model=MIXED, engine={"name": "vmap", "device": "pretend"})
    with closing(Federation(experiment)) as federation, federation.open() as runner:
        assert len({own.engine.chunk for own in runner._runners}) == 1
        assert runner.engine.chunk == runner._runners[0].engine.chunk


# What is given back.


@pytest.mark.parametrize("engine", ["serial", "vmap"])
def test_data_sets_leave_the_device_with_the_last_runner(engine):
    gc.collect()
    before, count = pretend.allocated(0), 4000
    experiment = lenet(
        engine,
        data=Noise(count=count),
        local={"steps": 1},
        evaluate={"every": 1, "test_last": 1},
    )
    data = count * 3 * 32 * 32
    with closing(Federation(experiment)) as first, first.open() as runner:
        first.advance(runner)
        with closing(Federation(experiment)) as second, second.open() as other:
            second.advance(other)
            assert first.dataset is second.dataset
            assert data < pretend.allocated(0) - before
            # It is there once; the threads of autograd give what else was there back a moment late.
            wait_for(lambda: pretend.allocated(0) - before < 2 * data, "memory that is given back")
        assert data < pretend.allocated(0) - before  # the first still has it
    # The federations' own models are left.
    wait_for(lambda: pretend.allocated(0) - before < data, "a data set that is given back")
    del first, second, runner, other
    gc.collect()
    wait_for(lambda: pretend.allocated(0) - before < data // 100, "memory that is given back")


@pytest.mark.parametrize("engine", ["serial", "vmap"])
def test_a_round_leaves_nothing_on_the_device_for_the_garbage_collector(engine):
    """Tensors in a cycle of objects would be there until Python looks for cycles."""
    with closing(Federation(lenet(engine))) as federation, federation.open() as runner:
        federation.advance(runner)
        gc.collect()
        room = pretend.allocated(0) + 4 * federation.layout.size
        gc.disable()
        try:
            federation.advance(runner)
            federation.advance(runner)
            # The threads of autograd give memory back a moment late.
            wait_for(lambda: pretend.allocated(0) < room, "memory that is given back")
        finally:
            gc.enable()


# What is left as it was, if a runner can't be opened.


@pytest.mark.parametrize(("engine", "options"), [("serial", {"exact": True}), ("vmap", {})])
def test_a_runner_that_can_not_be_made_leaves_the_process_as_it_was(engine, options, monkeypatch):
    left = []
    monkeypatch.setattr(
        "mnemos.engines.devices.tf32",
        lambda _wanted, _device: _Noting(left),
    )
    dropout = {"model": "support.dropping:Dropping"} if engine == "vmap" else {}
    if engine == "serial":

        def fails(*_words):
            raise ConfigError("no")

        monkeypatch.setattr("mnemos.engines.serial.Trainer", fails)
    with closing(Federation(lenet(engine, options=options, **dropout))) as federation:
        with pytest.raises(ConfigError):
            federation.open()
        assert not torch.are_deterministic_algorithms_enabled()
        assert left == ["in", "out"]


class _Noting:
    def __init__(self, left):
        self._left = left

    def __enter__(self):
        self._left.append("in")

    def __exit__(self, *_):
        self._left.append("out")


# Errors that a device reports late.


def test_a_late_error_accuses_nobody_wrongly(monkeypatch):
    def late(_waiting):
        raise torch.AcceleratorError("device-side assert triggered")

    monkeypatch.setattr("mnemos.engines.devices.with_losses", late)
    others = ", ".join(["\\d+"] * (CLIENTS - 1))
    with pytest.raises(
        ClientError,
        match=rf"client \d+ or one of those before it \({others}\) failed in round 1; a device reports "
        "errors late: AcceleratorError: device-side",
    ):
        play(lenet("serial"), 1)
    with pytest.raises(ClientError, match=r"client \d+ failed in round 1: AcceleratorError: device-side"):
        play(lenet("serial", "cpu"), 1)


def test_an_error_of_the_device_in_the_middle_is_not_the_last_clients_alone(monkeypatch):
    begun = []

    def trained(_clients):
        begun.append(1)
        if len(begun) == 3:
            raise torch.AcceleratorError("device-side assert triggered")
        return real(_clients)

    from mnemos.engines import devices

    real = devices.train_unread
    monkeypatch.setattr("mnemos.engines.devices.train_unread", trained)
    with pytest.raises(ClientError, match=r"client \d+ or one of those before it \(\d+, \d+\) failed"):
        play(lenet("serial"), 1)
    assert len(begun) == 3
