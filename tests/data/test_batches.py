"""A client's batches: every sample once an epoch, in an order of its own, loaded to the same bits."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mnemos.client.workload import LocalWorkload, draws, order
from mnemos.data import batches
from mnemos.data.augment import Crop, Cutout, Flip
from mnemos.data.batches import Draw, Loader, join, load_ahead
from mnemos.data.dataset import Dataset, Split

KEY = (0, 1, 2)
SHAPES = {"colour": (3, 5, 4), "grey": (1, 6, 6), "vector": (7,)}


def workload(count=10, batch=4, epochs=1, steps=None, noise=0.0, drop_single=False, first=0, fill=False):
    """A client that holds `count` samples, every third from `first` on."""
    samples = first + 3 * torch.arange(count)
    return LocalWorkload(samples, batch, epochs, steps, noise, drop_single, fill)


def keep(loader, todo):
    return loader.keep(todo.samples, todo.passes)


def drawn(todo, augment=(), shape=(3, 5, 4), key=KEY):
    return list(draws(todo, augment, shape, key))


def sizes(todo):
    return [batch.size for batch in drawn(todo)]


def dataset(kind, count=60, dtype=None):
    """Random samples: bytes of images, or features of vectors."""
    shape = SHAPES[kind]
    generator = torch.Generator().manual_seed(7)
    if kind == "vector":
        samples = torch.randn(count, *shape, generator=generator) * 3 + 1
    else:
        samples = torch.randint(256, (count, *shape), generator=generator, dtype=torch.uint8)
    split = Split(samples.to(dtype or samples.dtype), torch.randint(5, (count,), generator=generator))
    channels = shape[0]
    mean = tuple(0.1 + 10.3 * c for c in range(channels))
    std = tuple(0.7 + 1.9 * c for c in range(channels))
    return Dataset("random", split, split, tuple("abcde"), mean, std)


# --- which samples ------------------------------------------------------------------------------------


@settings(max_examples=80, deadline=None)
@given(count=st.integers(1, 40), batch=st.integers(1, 30), epochs=st.integers(1, 3), seed=st.integers(0, 99))
def test_filled_batches_are_all_full_and_hold_the_samples_equally_often(count, batch, epochs, seed):
    """As often as there is room for, in every epoch; with whole batches, filling changes nothing."""
    todo = workload(count, batch, epochs, fill=True)
    found = drawn(todo, key=(seed, 1, 2))
    each = -(-count // batch)
    assert [one.size for one in found] == [batch] * each * epochs
    for epoch in range(epochs):
        places = torch.cat([one.positions for one in found[epoch * each : (epoch + 1) * each]])
        times = places.bincount(minlength=count)
        assert times.min() >= 1
        assert times.max() - times.min() <= 1
        assert sorted(places[:count].tolist()) == list(range(count))
    if count % batch == 0:
        plain = drawn(workload(count, batch, epochs), key=(seed, 1, 2))
        assert all(a.indices.tolist() == b.indices.tolist() for a, b in zip(found, plain, strict=True))


def test_a_filled_batch_of_one_sample_is_not_left_out():
    assert sizes(workload(5, 4, drop_single=True)) == [4]
    assert sizes(workload(5, 4, drop_single=True, fill=True)) == [4, 4]


@settings(max_examples=80, deadline=None)
@given(
    count=st.integers(1, 40),
    batch=st.integers(1, 12),
    epochs=st.integers(1, 4),
    key=st.tuples(st.integers(0, 2**63 - 1), st.integers(1, 10**6), st.integers(0, 10**8)),
)
def test_every_epoch_has_each_sample_once(count, batch, epochs, key):
    todo = workload(count, batch, epochs)
    found = drawn(todo, key=key)
    assert len(found) == todo.total == epochs * -(-count // batch)
    assert todo.passes == epochs
    positions = torch.cat([b.positions for b in found]).view(epochs, count)
    for epoch in positions:
        assert torch.equal(epoch.sort().values, torch.arange(count))
    assert torch.equal(torch.cat([b.indices for b in found]), todo.samples[positions.flatten()])
    assert torch.equal(positions.flatten(), order(todo, key))


@pytest.mark.parametrize(
    ("count", "batch", "expected"),
    [(10, 4, (4, 4, 2)), (8, 4, (4, 4)), (3, 4, (3,)), (1, 4, (1,)), (9, 4, (4, 4, 1)), (3, 1, (1, 1, 1))],
)
def test_a_smaller_last_batch_is_used_too(count, batch, expected):
    assert workload(count, batch).epoch == expected
    assert sizes(workload(count, batch, epochs=2)) == list(expected * 2)


@pytest.mark.parametrize(
    ("steps", "expected", "passes"),
    [(1, [4], 1), (2, [4, 4], 1), (3, [4, 4, 2], 1), (7, [4, 4, 2, 4, 4, 2, 4], 3)],
)
def test_steps_cut_an_epoch_short_or_repeat_it(steps, expected, passes):
    """Ten samples in batches of four are an epoch of three steps, whatever `epochs` says."""
    for epochs in (1, 5):
        todo = workload(10, 4, epochs=epochs, steps=steps)
        assert sizes(todo) == expected
        assert (todo.total, todo.passes) == (steps, passes)


def test_steps_and_epochs_see_the_same_batches():
    long = drawn(workload(10, 4, epochs=3))
    for steps in range(1, 10):
        some = drawn(workload(10, 4, steps=steps))
        assert len(some) == steps
        for one, other in zip(some, long, strict=False):
            assert torch.equal(one.positions, other.positions)


def test_epochs_differ_in_their_order():
    first, second = order(workload(30, 4, epochs=2), KEY).view(2, 30)
    assert not torch.equal(first, second)


@pytest.mark.parametrize(
    ("count", "plain", "dropped"),
    [
        (9, [4, 4, 1], [4, 4]),
        (5, [4, 1], [4]),
        (10, [4, 4, 2], [4, 4, 2]),
        (8, [4, 4], [4, 4]),
        (1, [1], [1]),
    ],
)
def test_a_last_batch_of_one_is_left_out_for_batch_norm_only(count, plain, dropped):
    """A client's only sample is kept: it is refused elsewhere, with a sentence that says why."""
    assert sizes(workload(count, 4, epochs=2)) == plain * 2
    assert sizes(workload(count, 4, epochs=2, drop_single=True)) == dropped * 2


def test_with_a_batch_left_out_an_epoch_still_has_no_sample_twice():
    todo = workload(9, 4, epochs=60, drop_single=True)
    epochs = order(todo, KEY).view(60, 8)
    assert all(len(epoch.unique()) == 8 for epoch in epochs)
    assert len(epochs.unique()) == 9  # it isn't always the same one


# --- in which order -----------------------------------------------------------------------------------


def test_the_order_depends_on_seed_round_and_client():
    todo = workload(30)
    keys = [(0, 1, 2), (1, 1, 2), (0, 2, 2), (0, 1, 3), (0, 2, 1), (0, 12, 3), (0, 1, 23)]
    found = {tuple(order(todo, key).tolist()) for key in keys}
    assert len(found) == len(keys)


def test_the_order_depends_on_nothing_else():
    reference = order(workload(30), KEY)
    state = torch.get_rng_state()
    for other in (
        workload(30),
        workload(30, batch=7),
        workload(30, noise=0.5),
        workload(30, first=100),
        workload(30, steps=8),
        workload(30, epochs=4),
        workload(30, drop_single=True),
    ):
        torch.manual_seed(len(other.samples))
        assert torch.equal(order(other, KEY)[:30], reference)
    for augment in ((), (Flip(),), (Crop(), Flip(), Cutout())):
        positions = [b.positions for b in drawn(workload(30, noise=0.1), augment)]
        assert torch.equal(torch.cat(positions), reference)
    torch.set_rng_state(state)


def test_nothing_is_drawn_from_the_global_generator():
    before = torch.get_rng_state()
    drawn(workload(30, noise=0.5), (Crop(), Flip(), Cutout()))
    assert torch.equal(torch.get_rng_state(), before)


def test_noise_does_not_depend_on_augmentation_nor_the_other_way_round():
    both = drawn(workload(noise=0.5, epochs=2), (Crop(), Flip()))
    noisy = drawn(workload(noise=0.5, epochs=2))
    changed = drawn(workload(epochs=2), (Crop(), Flip()))
    for one, two, three in zip(both, noisy, changed, strict=True):
        assert torch.equal(one.noise, two.noise)
        assert all(torch.equal(a, b) for a, b in zip(one.augment, three.augment, strict=True))
        assert two.augment == ()
        assert three.noise is None


# --- noise --------------------------------------------------------------------------------------------


def test_noise_has_the_requested_standard_deviation():
    """n = 2 · 1000 · 60 normal numbers of deviation σ = 0.3.

    The estimate's own standard errors are σ / √(2n) = 0.2 % of σ for the deviation and σ / √n for the mean;
    five of each are allowed.
    """
    sigma, count = 0.3, 2 * 1000 * 60
    noise = torch.cat([b.noise for b in drawn(workload(1000, 64, epochs=2, noise=sigma))]).double()
    assert noise.shape == (2000, 3, 5, 4)
    assert float(noise.std()) == pytest.approx(sigma, rel=5 / (2 * count) ** 0.5)
    assert float(noise.mean()) == pytest.approx(0, abs=5 * sigma / count**0.5)


def test_noise_is_new_for_every_batch_client_and_round():
    todo = workload(8, 4, epochs=2, noise=1.0)
    found = [b.noise for key in (KEY, (0, 1, 3), (0, 2, 2)) for b in drawn(todo, key=key)]
    assert len({tuple(noise.flatten().tolist()) for noise in found}) == 12


def test_noise_scales_with_its_level():
    for one, two in zip(drawn(workload(noise=0.5)), drawn(workload(noise=1.0)), strict=True):
        assert torch.equal(one.noise * 2, two.noise)


def test_noise_is_added_to_normalised_samples():
    data = dataset("colour")
    loader = Loader(data, (), channels_last=False)
    (batch,) = drawn(workload(4, noise=0.5))
    clean = Draw(batch.indices, batch.positions)
    mean, std = (torch.tensor(values).view(3, 1, 1) for values in (data.mean, data.std))
    x, labels = loader(batch)
    torch.testing.assert_close(x, (data.train.samples[batch.indices] - mean) / std + batch.noise)
    assert torch.equal(x, loader(clean)[0] + batch.noise)
    assert torch.equal(labels, data.train.labels[batch.indices])


# --- loading ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("noise", [0.0, 0.5])
@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize(
    ("kind", "dtype"),
    [("colour", None), ("grey", None), ("vector", None), ("colour", torch.float32)],
    ids=str,
)
def test_a_kept_client_gives_the_same_bits(kind, dtype, channels_last, noise):
    """Also the same order in memory, on which a convolution's rounding depends."""
    loader = Loader(dataset(kind, dtype=dtype), (), channels_last)
    todo = workload(17, 4, epochs=3, noise=noise)
    load = keep(loader, todo)
    assert load is not loader
    for batch in drawn(todo, shape=SHAPES[kind]):
        x, labels = loader(batch)
        kept, same = load(batch)
        assert x.dtype == kept.dtype == torch.float32
        assert torch.equal(kept, x)
        assert torch.equal(same, labels)
        if kind != "grey":
            assert kept.stride() == x.stride()
        if kind == "colour":
            assert kept.is_contiguous(memory_format=torch.channels_last) == channels_last


@pytest.mark.parametrize("noise", [0.0, 0.5])
def test_grey_images_are_channels_last_too(noise):
    """By their strides, which convolutions go by: in the other order these are slower and round otherwise."""
    loader = Loader(dataset("grey"), (), channels_last=True)
    todo = workload(17, 4, epochs=2, noise=noise)
    load = keep(loader, todo)
    layer = torch.nn.Conv2d(1, 8, 3)
    for batch in drawn(todo, shape=SHAPES["grey"]):
        x, kept = loader(batch)[0], load(batch)[0]
        assert x.stride() == kept.stride() == (36, 1, 6, 1)
        assert torch.equal(layer(x), layer(kept))


def test_channels_last_changes_no_value():
    data = dataset("colour")
    for batch in drawn(workload(17, 4, noise=0.5), (Flip(),)):
        plain, _ = Loader(data, (Flip(),), channels_last=False)(batch)
        other, _ = Loader(data, (Flip(),), channels_last=True)(batch)
        assert torch.equal(plain, other)


def test_nothing_is_kept_where_it_does_not_pay(monkeypatch):
    plain = Loader(dataset("colour"), (), channels_last=True)
    assert keep(plain, workload(10, 4, epochs=1)) is plain
    assert keep(plain, workload(10, 4, steps=3)) is plain
    assert keep(plain, workload(10, 4, steps=4)) is not plain
    augmented = Loader(dataset("colour"), (Flip(),), channels_last=True)
    assert keep(augmented, workload(10, 4, epochs=5)) is augmented
    bytes_kept = 10 * 4 * 3 * 5 * 4
    monkeypatch.setattr(batches, "_KEEP_LIMIT", bytes_kept)
    assert keep(plain, workload(10, 4, epochs=2)) is not plain
    monkeypatch.setattr(batches, "_KEEP_LIMIT", bytes_kept - 1)
    assert keep(plain, workload(10, 4, epochs=2)) is plain


def test_loading_leaves_the_data_set_alone():
    data = dataset("colour")
    before = data.train.samples.clone()
    loader = Loader(data, (Crop(pad=1), Flip(), Cutout(size=2)), channels_last=True)
    for batch in drawn(workload(17, 4, noise=0.5), loader.augment):
        loader(batch)
    assert torch.equal(data.train.samples, before)


# --- several clients at once --------------------------------------------------------------------------


@pytest.mark.parametrize("augment", [(), (Crop(pad=1), Flip(), Cutout(size=2))], ids=["plain", "augmented"])
@pytest.mark.parametrize("noise", [(0.0, 0.0, 0.0), (0.5, 0.25, 0.5), (0.0, 0.5, 0.0)], ids=str)
def test_joined_batches_load_like_one_after_the_other(augment, noise):
    """Also where only some clients are noisy."""
    loader = Loader(dataset("colour"), augment, channels_last=True)
    parts = [
        drawn(workload(count, 4, noise=level, first=client), augment, key=(0, 1, client))[0]
        for client, (count, level) in enumerate(zip((10, 3, 7), noise, strict=True))
    ]
    together = join(parts)
    assert together.size == 4 + 3 + 4
    assert torch.equal(together.indices, torch.cat([part.indices for part in parts]))
    assert torch.equal(together.positions, torch.cat([part.positions for part in parts]))
    x, labels = loader(together)
    apart = [loader(part) for part in parts]
    assert torch.equal(x, torch.cat([one for one, _ in apart]))
    assert torch.equal(labels, torch.cat([one for _, one in apart]))


@pytest.mark.parametrize("fitting", [1, 9, 100])
@pytest.mark.parametrize("augment", [(), (Crop(pad=1), Flip())], ids=["plain", "augmented"])
def test_batches_that_are_loaded_ahead_are_those_of_one_by_one(augment, fitting, monkeypatch):
    """Ten samples in batches of 4, 4 and 2, twice: one by one, two at a time, or all at once."""
    monkeypatch.setattr(batches, "_AHEAD_LIMIT", fitting * 4 * 3 * 5 * 4)
    loader = Loader(dataset("colour"), augment, channels_last=True)
    todo = drawn(workload(10, 4, epochs=2, noise=0.5), augment)
    calls = []
    found = list(load_ahead(lambda batch: calls.append(batch.size) or loader(batch), todo, (3, 5, 4)))
    assert calls == {1: [4, 4, 2] * 2, 9: [8, 6, 6], 100: [20]}[fitting]
    for (x, labels), batch in zip(found, todo, strict=True):
        expected, own = loader(batch)
        assert torch.equal(x, expected)
        assert x.stride() == expected.stride()
        assert torch.equal(labels, own)


def test_joining_one_batch_is_that_batch():
    (part,) = drawn(workload(4, noise=0.5), (Flip(),))
    joined = join([part])
    assert torch.equal(joined.indices, part.indices)
    assert torch.equal(joined.noise, part.noise)
    assert torch.equal(joined.augment[0], part.augment[0])


def test_joined_batches_of_clean_clients_have_no_noise():
    assert join(drawn(workload(10, 4), shape=(7,))).noise is None
