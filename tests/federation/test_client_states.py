"""What clients remember: in memory or in a file, across kills, and without growing for ever."""

import os
import signal

import numpy as np
import pytest
import torch

import mnemos
from mnemos.common import rows as module
from mnemos.errors import DataError
from mnemos.federation.client_states import ClientStates
from mnemos.runs import checkpoint
from mnemos.runs.execute import Silent, resume
from mnemos.runs.run import runs_in
from support.interrupt import Stop
from support.processes import forked

EXAMPLE = {"vector": torch.zeros(3), "number": torch.zeros(()), "matrix": torch.zeros(2, 2)}
WIDTH = 3 + 1 + 4


def state(value):
    """A state whose 8 numbers all differ, and differ from other values' ones."""
    numbers = 100.0 * value + torch.arange(8.0)
    return {"vector": numbers[:3], "number": numbers[3], "matrix": numbers[4:].view(2, 2)}


def assert_is(found, value):
    expected = state(value)
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        assert found[name].shape == tensor.shape
        assert torch.equal(found[name], tensor), name


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch):
    """Four rows a block, so that a few clients need several."""
    monkeypatch.setattr(module, "_BLOCK_BYTES", 4 * WIDTH * 4)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "clients.bin"


@pytest.fixture(params=["memory", "file"])
def states(request, path):
    made = one_group(EXAMPLE)
    if request.param == "file":
        made.keep_in(path)
    return made


def one_group(example):
    """Empty states of a federation of one group."""
    return ClientStates([example], np.zeros(1_000_000, np.int16))


def update(states, new, number):
    """The new states of a round's clients."""
    for client, value in new.items():
        states.hold(client, value)
    states.commit(number)


def reopened(path, index):
    """The states of an index, as another process finds them."""
    found = one_group(EXAMPLE)
    found.keep_in(path)
    found.restore(*index)
    return found


def test_states_are_given_back_by_client(states):
    update(states, {5: state(1), 900_000: state(2)}, 1)
    assert_is(states[5], 1)
    assert_is(states[900_000], 2)
    update(states, {5: state(3)}, 2)
    assert_is(states[5], 3)
    assert_is(states[900_000], 2)
    states.sync()
    assert_is(states[5], 3)


def test_a_client_never_seen_has_no_state(states):
    update(states, {5: state(1)}, 1)
    assert 5 in states
    assert 6 not in states
    with pytest.raises(KeyError):
        states[6]


def test_what_is_given_and_taken_is_nobody_elses(states):
    given = state(1)
    update(states, {5: given}, 1)
    given["vector"].zero_()
    states[5]["matrix"].zero_()
    assert_is(states[5], 1)


def test_many_clients_over_many_blocks(states):
    for number in range(1, 4):
        update(states, {client: state(10 * client + number) for client in range(0, 50, number)}, number)
    for client in range(50):
        last = max(number for number in range(1, 4) if client % number == 0)
        assert_is(states[client], 10 * client + last)


def test_the_index_says_which_row_is_whose(states):
    update(states, {5: state(1), 7: state(2)}, 1)
    clients, rows = states.index()
    assert clients.tolist() == [5, 7]
    assert len(set(rows.tolist())) == 2
    assert clients.dtype == rows.dtype == np.int64


def test_an_older_index_gives_the_older_values(path):
    """As after a crash: the newer rows are there, but the checkpoint speaks of the older ones."""
    states = one_group(EXAMPLE)
    states.keep_in(path)
    update(states, {1: state(1), 2: state(2)}, 1)
    first = states.index()
    update(states, {1: state(3), 4: state(4)}, 2)
    second = states.index()
    update(states, {1: state(5), 2: state(6)}, 3)

    found = reopened(path, first)
    assert_is(found[1], 1)
    assert_is(found[2], 2)
    assert 4 not in found
    found = reopened(path, second)
    assert_is(found[1], 3)
    assert_is(found[2], 2)
    assert_is(found[4], 4)


def test_going_on_from_an_older_index_spares_what_it_speaks_of(path):
    states = one_group(EXAMPLE)
    states.keep_in(path)
    update(states, {client: state(client) for client in range(6)}, 1)
    first = states.index()
    update(states, {client: state(10 + client) for client in range(3)}, 2)
    found = reopened(path, first)
    update(found, {client: state(20 + client) for client in range(3)}, 2)
    for client in range(6):
        assert_is(found[client], 20 + client if client < 3 else client)
    found = reopened(path, first)
    for client in range(6):
        assert_is(found[client], client)


def test_a_row_is_used_again_only_once_it_is_forgotten(path):
    states = one_group(EXAMPLE)
    states.keep_in(path)
    update(states, {1: state(1)}, 1)
    (before,) = states.index()[1].tolist()
    update(states, {1: state(2)}, 2)
    for number in range(3, 40):
        states.forget(1)  # the checkpoint of round 1 is still there: its row was left in round 2
        update(states, {1: state(number)}, number)
        assert states.index()[1].tolist() != [before]
    assert_is(reopened(path, (np.array([1]), np.array([before])))[1], 1)
    states.forget(2)
    seen = set()
    for number in range(40, 60):
        update(states, {1: state(number)}, number)
        seen.update(states.index()[1].tolist())
    assert before in seen


@pytest.mark.parametrize("further", [0, 9])
def test_an_older_index_is_spared_until_it_is_forgotten(path, further):
    """Also where the older one has rows beyond all those of the newer."""
    states = one_group(EXAMPLE)
    states.keep_in(path)
    update(states, {client: state(client) for client in range(4 + further)}, 1)
    older = states.index()
    newer = tuple(part[:2] for part in older)

    def spared(forget):
        found = reopened(path, newer)
        found.spare(*older, 5)
        found.forget(forget)
        update(found, {client: state(50 + client) for client in range(20)}, 6)
        again = reopened(path, older)
        return [torch.equal(again[client]["vector"], state(client)["vector"]) for client in older[0].tolist()]

    assert all(spared(forget=4))
    assert sum(spared(forget=5)) == 2  # the rows of the newer index alone


def test_neither_file_nor_memory_grows_for_ever(states, path):
    """Ten clients, three a round; two checkpoints keep the rows that six clients have left, at most."""
    for number in range(1, 300):
        chosen = {(number * step) % 10: state(number + step) for step in (1, 3, 7)}
        update(states, chosen, number)
        states.forget(number - 2)
        last = max(states.index()[1])
    assert last < 10 + 3 * 4
    if path.exists():
        assert path.stat().st_size <= 24 * 4 * WIDTH
    for step in (1, 3, 7):
        assert_is(states[(299 * step) % 10], 299 + step)


def test_without_anything_to_keep_nothing_is_stored(path):
    states = one_group({})
    states.keep_in(path)
    update(states, {1: {}, 2: {}}, 1)
    states.sync()
    assert 1 not in states
    assert not path.exists()
    assert [len(part) for part in states.index()] == [0, 0]
    states.restore(*states.index())


@pytest.mark.parametrize("damage", ["missing", "short", "empty"])
def test_a_file_that_lacks_rows_is_named(path, damage):
    states = one_group(EXAMPLE)
    states.keep_in(path)
    update(states, {client: state(client) for client in range(6)}, 1)
    if damage == "missing":
        path.unlink()
    else:
        with path.open("r+b") as file:
            file.truncate(0 if damage == "empty" else 5 * 4 * WIDTH)
    with pytest.raises(DataError) as caught:
        reopened(path, states.index())
    size = {"missing": 0, "empty": 0, "short": 5 * 4 * WIDTH}[damage]
    assert str(caught.value) == f"{path}: it is missing or too short: {size} bytes"


# whole runs

EXPERIMENT = {
    "partition": {"name": "label-dirichlet", "clients": 6, "alpha": 0.5},
    "model": {"name": "mlp", "hidden": [4]},
    "method": {"name": "scaffold"},
    "local": {"steps": 3, "batch": 16, "lr": 0.1},
    "participation": 0.5,
    "rounds": 9,
    "evaluate": {"every": 2, "test_last": 1},
    "engine": "serial",
}


def die_in(round, where, folder):
    """Start a run, or resume one, and be killed at the end of a round."""
    os.chdir(folder)
    module._BLOCK_BYTES = 1  # a row a block, as with a large model,
    checkpoint._SYNC_EVERY = 0.0  # and two checkpoints at most: no row is free for long
    save = checkpoint.Checkpoints.save

    def die(self, federation, metrics):
        if federation.round == round:
            os.kill(os.getpid(), signal.SIGKILL)  # the round's states are written, its checkpoint isn't
        save(self, federation, metrics)

    checkpoint.Checkpoints.save = die
    if where == "start":
        mnemos.run(EXPERIMENT, out="killed")
    else:
        mnemos.resume(where)


def killed(where, round, folder):
    """Start a run, or resume one, in another process that is killed at the end of a round."""
    with forked(die_in, round, where, folder) as process:
        process.join(240)
        assert process.exitcode == -signal.SIGKILL
    (run,) = runs_in(folder / "killed")
    return run


@pytest.fixture
def whole(tmp_path):
    return contents(mnemos.run(EXPERIMENT, out=tmp_path / "whole"))


def contents(run):
    return [run.file(name).read_bytes() for name in ("model.safetensors", "metrics.jsonl")]


def test_a_killed_run_ends_like_one_that_was_not(whole, tmp_path):
    run = killed("start", 4, tmp_path)
    assert run.saved_rounds == 3
    run = killed(run.path, 5, tmp_path)
    assert run.saved_rounds == 4
    assert contents(resume(run.path)) == whole


def test_the_checkpoint_before_still_finds_its_states_after_a_resume(whole, tmp_path):
    """Killed in round 4, resumed, killed in round 5; then the newest checkpoint turns out to be damaged.

    The one before it speaks of rows that the newest has left: the resumed process must not write to them.
    """
    run = killed("start", 5, tmp_path)
    run = killed(run.path, 5, tmp_path)
    newest = max(run.file("checkpoints").iterdir())
    newest.write_bytes(newest.read_bytes()[:-7])
    assert contents(resume(run.path)) == whole


def test_a_newer_checkpoint_that_was_given_up_is_not_taken_up_again(whole, tmp_path):
    """Metrics are too short for the checkpoint of round 4: the run goes on from round 3.

    It is killed again as soon as they are long enough; the old checkpoint's rows have other states by then.
    """
    run = killed("start", 5, tmp_path)
    metrics = run.file("metrics.jsonl")
    rows = [line for line in metrics.read_bytes().splitlines(keepends=True) if b'"round": 5' not in line]
    metrics.write_bytes(b"".join(rows)[:-3])
    killed(run.path, 4, tmp_path)
    assert contents(resume(run.path)) == whole


@pytest.mark.parametrize("damage", ["missing", "short"])
def test_a_run_whose_states_are_lost_says_so(tmp_path, damage):
    observer = Stop(3)
    with pytest.raises(KeyboardInterrupt):
        mnemos.run(EXPERIMENT, out=tmp_path, observer=observer)
    file = observer.run.file("clients.bin")
    if damage == "missing":
        file.unlink()
    else:
        with file.open("r+b") as handle:
            handle.truncate(10)
    with pytest.raises(DataError, match=r"clients\.bin: it is missing or too short") as caught:
        resume(observer.run.path)
    assert "\n" not in str(caught.value)


def test_states_take_no_more_room_in_a_longer_run(tmp_path, monkeypatch):
    """Six clients, and the rows they have left since the older checkpoint, three a round; a row a block."""
    monkeypatch.setattr(checkpoint, "_SYNC_EVERY", 0.0)
    sizes = []
    for rounds in (9, 40):
        run = mnemos.run({**EXPERIMENT, "rounds": rounds}, out=tmp_path)
        sizes.append(run.file("clients.bin").stat().st_size)
    row = 4 * (64 * 4 + 4 + 4 * 10 + 10)
    assert sizes[1] <= (6 + 3 * 3) * row


def test_a_method_without_state_makes_no_file(tmp_path):
    run = mnemos.run({**EXPERIMENT, "method": "fedavg", "rounds": 2}, out=tmp_path)
    assert not run.file("clients.bin").exists()


def test_states_of_a_round_that_came_to_nothing_are_dropped(states):
    update(states, {1: state(1)}, 1)
    states.hold(1, state(2))
    states.hold(2, state(3))
    assert_is(states[1], 1)
    states.drop()
    states.commit(2)
    assert_is(states[1], 1)
    assert 2 not in states


def test_a_disk_without_room_shows_before_a_state_is_written(path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    made = one_group(EXAMPLE)
    made.keep_in(path)
    monkeypatch.setattr("os.posix_fallocate", full)
    with pytest.raises(OSError, match="No space left"):
        made.hold(1, state(1))


def test_after_a_loss_of_power_only_what_was_surely_written_counts(tiny, tmp_path, monkeypatch):
    """The first checkpoint waits for the disk, the next ones of these ten seconds don't."""
    described = {**tiny, "method": "scaffold", "rounds": 6}
    whole = mnemos.run(described, out=tmp_path / "whole")
    part = mnemos.run({**described, "rounds": 4}, out=tmp_path / "part")
    monkeypatch.setattr(checkpoint, "_boot", lambda: "another start of the machine")
    began = []

    class Watching(Silent):
        def started(self, run, experiment, round):
            began.append(round)

    resume(part.path, 6, Watching())
    assert began == [1]
    assert part.file("model.safetensors").read_bytes() == whole.file("model.safetensors").read_bytes()


def test_states_of_two_widths_go_on_from_an_older_index(path):
    """Clients 0 and 2 have states of eight numbers, 1 and 3 of one; rows are counted in each file."""
    which = np.array([0, 1, 0, 1], np.int16)

    def two_groups():
        made = ClientStates([EXAMPLE, {"number": torch.zeros(())}], which)
        made.keep_in(path)
        return made

    def hold(made, value):
        for client in range(4):
            made.hold(client, {"number": torch.tensor(float(value))} if client % 2 else state(value))
        made.commit(value)

    one = two_groups()
    hold(one, 1)
    older = one.index()
    hold(one, 2)
    newer = one.index()
    again = two_groups()
    again.restore(*newer)
    again.spare(*older, 2)
    assert_is(again[2], 2)
    assert float(again[3]["number"]) == 2
    hold(again, 3)  # into rows that neither index speaks of
    for index, value in ((older, 1), (newer, 2)):
        back = two_groups()
        back.restore(*index)
        assert_is(back[0], value)
        assert float(back[1]["number"]) == value
    assert sorted(file.name for file in path.parent.iterdir()) == ["clients-1.bin", "clients.bin"]
