"""Runs that must have the same bits, whatever their experiments' hashes are."""

import struct


def trained_bits(run):
    """The bytes of all trained tensors, in their file's order.

    The file's own header also has the experiment's hash, which differs between engines and measures.
    """
    content = run.file("model.safetensors").read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    return content[8 + length :]


def assert_same_bits(runs):
    """All runs have the same model and the same metrics."""
    assert len({trained_bits(run) for run in runs}) == 1
    assert len({run.file("metrics.jsonl").read_bytes() for run in runs}) == 1
