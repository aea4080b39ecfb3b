"""Data files: each source with one of its files replaced."""

from __future__ import annotations

import gzip
import io
import json
import os
import shutil
import struct
import tarfile
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import strategies as st
from PIL import Image

from fuzzing.attempt import Target
from fuzzing.inputs import Inputs, altered, as_json, deep_json, mutated
from mnemos.data.dataset import Dataset, Source
from mnemos.data.folder import stamp
from mnemos.data.sources._archive import unpack
from mnemos.data.sources.cifar import Cifar10, Cifar100
from mnemos.data.sources.csv import Csv
from mnemos.data.sources.femnist import Femnist, _key
from mnemos.data.sources.folder import Folder
from mnemos.data.sources.huggingface import HuggingFace
from mnemos.data.sources.idx import Mnist
from mnemos.data.sources.npz import Npz
from mnemos.data.sources.parquet import Parquet

_GIGABYTE = 1 << 30


# --- published formats ---------------------------------------------------------------------------------


def idx(folder: Path) -> Target:
    """MNIST's images, plain."""
    sample = _idx(2051, (3, 28, 28))
    return _mnist(folder, "train-images-idx3-ubyte", sample, lambda content: content)


def idx_labels(folder: Path) -> Target:
    """MNIST's labels, plain."""
    return _mnist(folder, "train-labels-idx1-ubyte", _idx(2049, (3,)), lambda content: content)


def idx_gzip(folder: Path) -> Target:
    """MNIST's images, compressed."""
    sample = _idx(2051, (3, 28, 28))
    return _mnist(folder, "train-images-idx3-ubyte.gz", sample, lambda content: gzip.compress(content, 1))


def cifar(folder: Path) -> Target:
    """CIFAR-10's records."""
    sample = bytes([3]) + bytes(3072) + bytes([9]) + bytes([255]) * 3072
    return _cifar(folder, "data_batch_2.bin", sample, Cifar10())


def cifar_names(folder: Path) -> Target:
    """CIFAR-100's names of classes."""
    sample = "".join(f"class {number}\n" for number in range(20)).encode()
    return _cifar(folder, "coarse_label_names.txt", sample, Cifar100(labels="coarse"))


def archive(folder: Path) -> Target:
    """A gzipped tar archive: nothing of it gets out of its folder, and no more than its files' size."""
    inside = folder / "inside" / "data"
    path = folder / "archive.tar.gz"
    names = {"a.bin", "b.bin"}
    entries = {"top/a.bin": b"a" * 30, "top/b.bin": b"b" * 30, "top/other": b"c"}
    plain = _tar(entries)

    def read(content: bytes) -> None:
        shutil.rmtree(inside, ignore_errors=True)
        inside.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
        before = stamp(folder)
        try:
            unpack(path, names, inside)
        finally:
            found = set(inside.rglob("*"))
            assert {file.name for file in found} <= names
            assert all(file.is_file() and not file.is_symlink() for file in found)
            shutil.rmtree(inside, ignore_errors=True)
            assert stamp(folder) == before

    inputs = st.one_of(
        mutated([plain]).map(lambda content: gzip.compress(content, 1)), mutated([gzip.compress(plain)])
    )
    return Target(read, inputs, [gzip.compress(plain)], [b"", plain, *map(gzip.compress, _tars())])


def femnist(folder: Path) -> Target:
    """LEAF's JSON."""
    known = _leaf()
    with patch.dict(os.environ, {"MNEMOS_DATA": str(folder)}):
        file = folder / "femnist" / "train" / "a.json"
        for part in ("train", "test"):
            (folder / "femnist" / part).mkdir(parents=True)
            (folder / "femnist" / part / "a.json").write_bytes(as_json(known))
    sample = as_json(known)
    short = {
        **known,
        "user_data": {"w0": {"x": [[0.5] * 784], "y": [61]}},
        "users": ["w0"],
        "num_samples": [1],
    }
    nasty = [b"", b"null", b"[]", b"{}", deep_json(), sample.replace(b"0.5", b"1e999", 1), b"9" * 5000]
    wrong: tuple[list[Any], ...] = ([None], [[]], [{}], ["w1"], [1.5])
    nasty += [as_json({**short, "users": users, "num_samples": [1]}) for users in wrong]
    nasty += [as_json({**short, "num_samples": counts}) for counts in ([-1], ["1"], [None], [1e308], [2**70])]

    def read(content: bytes) -> Dataset:
        with patch.dict(os.environ, {"MNEMOS_DATA": str(folder), "MNEMOS_CACHE": str(folder / "cache")}):
            shutil.rmtree(folder / ".cache", ignore_errors=True)
            file.write_bytes(content)
            return Femnist().load()

    return Target(read, st.one_of(altered(short), mutated([as_json(short)])), [sample], nasty)


def femnist_converted(folder: Path) -> Target:
    """The arrays that are kept of LEAF's JSON: damaged ones are made again."""
    target = femnist(folder)
    target.read(target.samples[0])
    place = folder / ".cache" / "femnist.npz"
    with np.load(place) as found:
        arrays = dict(found)
    key = _key(folder / "femnist")

    def read(content: bytes) -> None:
        with patch.dict(os.environ, {"MNEMOS_DATA": str(folder), "MNEMOS_CACHE": str(folder / "cache")}):
            assert _key(folder / "femnist") == key
            place.write_bytes(content)
            Femnist().load()

    sample = _npz(arrays)
    other = [{"writers": np.array(True)}, {"x_train": arrays["x_train"] / 2}, {"owners_test": np.array(1)}]
    other.append({"key": np.frombuffer(b"\xff" * 8, "<U2")})
    nasty = [_npz({**arrays, **one}) for one in other]
    return Target(read, st.one_of(_arrays(arrays), mutated([sample])), [sample], [*nasty, *_npz_nasty()])


# --- the user's own ------------------------------------------------------------------------------------


def npz(folder: Path) -> Target:
    """Arrays in numpy's format."""
    arrays: dict[str, Any] = {
        "x_train": np.zeros((6, 5, 5, 3), np.uint8),
        "y_train": np.arange(6) % 2,
        "x_test": np.ones((2, 5, 5, 3), np.uint8),
        "y_test": np.array([0, 1]),
        "owners_train": np.array(["a", "b"] * 3),
        "classes": np.array(["one", "two"]),
    }
    samples = [
        _npz(arrays),
        _npz({"x": np.eye(5, dtype=np.float32), "y": np.array([b"a", b"b", b"a", b"b", b"a"])}),
    ]
    path = folder / "x.npz"

    def read(content: bytes) -> Dataset:
        path.write_bytes(content)
        return Npz(path=str(path)).load()

    inputs = st.one_of(_arrays(arrays), _headers(), mutated(samples))
    wrong = [
        np.frombuffer(code * 2, kind) for kind in ("<U1", ">U1") for code in (b"\xff" * 4, b"\0\xd8\xd8\0")
    ]
    nasty = [_npz({**arrays, "classes": names}) for names in wrong]
    return Target(read, inputs, samples, [*nasty, *_npz_nasty()])


def images(folder: Path) -> Target:
    """Compressed images in a folder."""
    kinds = ("png", "jpeg", "gif", "bmp", "webp", "tiff", "ppm")
    modes = ("RGB", "L", "P", "RGBA", "1", "LA", "CMYK")
    samples = []
    for kind in kinds:
        for mode in modes:
            buffer = io.BytesIO()
            try:
                Image.new(mode, (5, 4), 1).save(buffer, kind)
            except (OSError, ValueError):
                continue  # a mode that the format hasn't
            samples.append(buffer.getvalue())
    for name in ("a", "b"):
        (folder / "images" / name).mkdir(parents=True)
        Image.new("RGB", (6, 6), 3).save(folder / "images" / name / "1.png")
    path = folder / "images" / "a" / "2.png"

    def read(content: bytes) -> Dataset:
        path.write_bytes(content)
        return Folder(path=str(folder / "images"), size=6, test=0.5).load()

    return Target(read, mutated(samples), samples, _image_nasty())


def csv(folder: Path) -> Target:
    """A CSV file."""
    path = folder / "x.csv"
    samples = [
        b'x,y,label,owner\n1,2.5,a,n\n"3",-4e2,b,n\n5,6,a,s\n',
        b"label,owner,x\r\n1,2,3\r\n" + b"2,2,3\r\n" * 3,
    ]

    def read(content: bytes) -> Dataset:
        path.write_bytes(content)
        return Csv(path=str(path), owner="owner", test=0.5).load()

    wrong = [
        samples[0].replace(b"2.5", cell) for cell in (b"1e999", b"nan", b"1_0", b"\0", b'"', "٣".encode())
    ]
    return Target(read, mutated(samples), samples, [b"", b"\xef\xbb\xbf", b"\n" * 9, b"x" * 200_000, *wrong])


def parquet(folder: Path) -> Target:
    """A Parquet file."""
    path = folder / "x.parquet"
    samples = [_parquet(table) for table in _tables()]

    def read(content: bytes) -> Dataset:
        path.write_bytes(content)
        return Parquet(path=str(path), owner="owner", test=0.5).load()

    inputs = st.one_of(_columns().map(_parquet), mutated(samples))
    return Target(read, inputs, samples, [b"", b"PAR1", b"PAR1" * 3, b"PAR1\xff\xff\xff\x7fPAR1"])


def arrow(folder: Path) -> Target:
    """An Arrow stream as Hugging Face's datasets keep it."""
    place = folder / "saved"
    place.mkdir()
    (place / "state.json").write_text(json.dumps({"_data_files": [{"filename": "data.arrow"}]}))
    samples = [_stream(table) for table in _tables()]

    def read(content: bytes) -> Dataset:
        (place / "data.arrow").write_bytes(content)
        return HuggingFace(path=str(place), owner="owner", test=0.5).load()

    nasty = [b"", b"\xff\xff\xff\xff", b"\xff\xff\xff\xff\xff\xff\xff\x7f", b"\0" * 64]
    return Target(read, st.one_of(_columns().map(_stream), mutated(samples)), samples, nasty)


def saved_state(folder: Path) -> Target:
    """What Hugging Face writes beside its Arrow streams."""
    place = folder / "saved"
    for part in ("train", "test"):
        (place / part).mkdir(parents=True)
        (place / part / "data.arrow").write_bytes(_stream(_tables()[0]))
        (place / part / "state.json").write_text(json.dumps({"_data_files": [{"filename": "data.arrow"}]}))
    known = {
        "splits": ["train", "test"],
        "state": {"_data_files": [{"filename": "data.arrow"}], "_indices": None},
    }

    def read(content: bytes) -> Dataset:
        # One input for both files.
        (place / "dataset_dict.json").write_bytes(content)
        try:
            state = as_json(json.loads(content)["state"])
        except (ValueError, KeyError, TypeError, RecursionError):
            state = content
        (place / "train" / "state.json").write_bytes(state)
        return HuggingFace(path=str(place), owner="owner").load()

    nasty = [
        b"",
        b"null",
        b"[]",
        b"{}",
        deep_json(),
        b'{"splits": ["train", "test"], "_data_files": [{"filename": "\\u0000"}]}',
    ]
    nasty += [
        as_json({"splits": ["train", "test"], "state": {"_data_files": [{"filename": name}]}})
        for name in ("../test/data.arrow", "/etc/passwd", "..", ".", "/", "a" * 5000, "\ud800", "\0")
    ]
    return Target(read, st.one_of(altered(known), mutated([as_json(known)])), [as_json(known)], nasty)


# --- contents ------------------------------------------------------------------------------------------


def _idx(magic: int, shape: tuple[int, ...]) -> bytes:
    return struct.pack(f">{1 + len(shape)}I", magic, *shape) + bytes(
        number % 10 for number in range(int(np.prod(shape)))
    )


def _mnist(folder: Path, name: str, sample: bytes, compress: Callable[[bytes], bytes]) -> Target:
    place = folder / "mnist"
    place.mkdir()
    for part in ("train", "t10k"):
        (place / f"{part}-images-idx3-ubyte").write_bytes(_idx(2051, (3, 28, 28)))
        (place / f"{part}-labels-idx1-ubyte").write_bytes(_idx(2049, (3,)))
    (place / name.removesuffix(".gz")).unlink()

    def read(content: bytes) -> Dataset:
        (place / name).write_bytes(content)
        with patch.dict(os.environ, {"MNEMOS_DATA": str(folder), "MNEMOS_OFFLINE": "1"}):
            return Mnist().load()

    head = struct.unpack(">I", sample[:4])[0]
    axes = (2**32 - 1,) * (3 if head == 2051 else 1)
    claims = [struct.pack(f">{1 + len(axes)}I", head, *axes), struct.pack(">IIII", head, 10**7, 28, 28)]
    claims.append(struct.pack(">IIII", head, 2**32 - 1, 2**32 - 1, 0))
    nasty = [
        b"",
        sample[:3],
        struct.pack(">IIII", head, 0, 28, 28),
        *claims,
        *(claim + bytes(5 << 20) for claim in claims),
    ]
    whole = [compress(content) for content in nasty]
    inputs = st.one_of(mutated([sample]).map(compress), mutated([compress(sample)]))
    return Target(read, inputs, [compress(sample)], [*nasty, *whole])


def _cifar(folder: Path, name: str, sample: bytes, source: Source) -> Target:
    place = folder / type(source).folder  # type: ignore[attr-defined]
    place.mkdir()
    record = bytes(type(source).label_bytes + 3072)  # type: ignore[attr-defined]
    for file in (*type(source).train_files, *type(source).test_files):  # type: ignore[attr-defined]
        (place / file).write_bytes(record)

    def read(content: bytes) -> Dataset:
        (place / name).write_bytes(content)
        with patch.dict(os.environ, {"MNEMOS_DATA": str(folder), "MNEMOS_OFFLINE": "1"}):
            return source.load()

    return Target(
        read, mutated([sample]), [sample], [b"", b"\xff" * 3073, b"\xff" * 3074, b"\n" * 50, b"\xff\xfe"]
    )


def _tar(entries: Mapping[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, content in entries.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def _tars() -> list[bytes]:
    """Archives that want out of their folder, or to fill the disk."""
    found = [
        _tar({name: b"x"})
        for name in ("../a.bin", "/tmp/a.bin", "a.bin/a.bin", "../../inside/a.bin", "..", ".")
    ]
    for kind, target in (
        (tarfile.SYMTYPE, "/etc/passwd"),
        (tarfile.LNKTYPE, "../b.bin"),
        (tarfile.CHRTYPE, ""),
        (tarfile.DIRTYPE, ""),
    ):
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w") as tar:
            info = tarfile.TarInfo("a.bin")
            info.type, info.linkname = kind, target
            tar.addfile(info)
            inner = tarfile.TarInfo("a.bin/b.bin")
            inner.size = 1
            tar.addfile(inner, io.BytesIO(b"x"))
        found.append(buffer.getvalue())
    large = tarfile.TarInfo("a.bin")
    large.size = 1 << 33
    found.append(large.tobuf() + bytes(1 << 20))
    return found


def _leaf() -> dict[str, Any]:
    writers = {f"w{number}": {"x": [[0.5] * 784] * 2, "y": [number, 61]} for number in range(2)}
    return {"users": [*writers], "num_samples": [2, 2], "user_data": writers}


def _npz(arrays: Mapping[str, Any]) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


_KINDS = (
    "?",
    "u1",
    "i1",
    "<i2",
    ">i4",
    "<i8",
    ">u8",
    "<f2",
    ">f4",
    "<f8",
    "<c8",
    "<U2",
    ">U1",
    "S3",
    "V4",
    "<M8[s]",
    "<m8[D]",
    "O",
    "g",
)


def _arrays(known: Mapping[str, Any]) -> Inputs:
    """npz files with arrays of any type and shape in the place of some."""
    array = st.builds(
        _array,
        st.sampled_from(_KINDS[:-2]),
        st.lists(st.integers(0, 4), max_size=5),
        st.binary(min_size=8, max_size=8),
    )
    other = st.dictionaries(
        st.sampled_from([*known, "x", "y", "owners", "a/b", ""]), array, min_size=1, max_size=3
    )
    gone = st.sets(st.sampled_from([*known]), max_size=3)
    return st.builds(
        lambda new, without: _npz({**{name: a for name, a in known.items() if name not in without}, **new}),
        other,
        gone,
    )


def _array(kind: str, shape: list[int], content: bytes) -> Any:
    count = int(np.prod(shape)) * np.dtype(kind).itemsize
    return np.frombuffer((content * (count // 8 + 1))[:count], kind).reshape(shape)


def _headers() -> Inputs:
    """npz files whose headers claim what isn't there."""
    size = st.sampled_from([0, 1, 6, -1, 2**31, 2**40, 2**62, 2**63, 2**64, 10**30])
    shape = st.lists(size, max_size=4).map(tuple)
    header = st.builds(
        lambda kind, order, axes: f"{{'descr': {kind!r}, 'fortran_order': {order}, 'shape': {axes}, }}",
        st.sampled_from([*_KINDS, "<i99", [("a", "<i4")], "", ("<i4", (2,)), "O8"]),
        st.sampled_from(["True", "False", "1", "None"]),
        shape,
    )
    return st.builds(
        lambda name, text, body, method: _zip({f"{name}.npy": _npy(text.encode()) + body}, method),
        st.sampled_from(["x", "y", "x_train", "classes"]),
        header,
        st.binary(max_size=40),
        st.sampled_from([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2]),
    )


def _npy(header: bytes, version: bytes = b"\1\0") -> bytes:
    return b"\x93NUMPY" + version + struct.pack("<H", len(header) + 1) + header + b"\n"


def _zip(entries: Mapping[str, bytes], method: int = zipfile.ZIP_STORED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as file:
        for name, content in entries.items():
            file.writestr(name, content)
    return buffer.getvalue()


def _npz_nasty() -> list[bytes]:
    claim = b"{'descr': '<f8', 'fortran_order': False, 'shape': (%d,), }"
    bomb = _npy(claim % (_GIGABYTE // 2)) + bytes(1 << 26)
    buffer = io.BytesIO()
    np.save(buffer, np.zeros(3))
    return [
        b"",
        b"PK",
        b"PK\5\6" + bytes(18),
        buffer.getvalue(),
        _npy(b"{'a': "),
        _zip({"x.npy": b""}),
        _zip({"x.npy": b"\x93NUMPY"}),
        _zip({"x": b"text", "y": b"text"}),
        _zip({"x.npy": _npy(b"__import__('os')")}),
        _zip({"x.npy": _npy(b"[" * 5000)}),
        _zip({"x.npy": _npy(b"{}")}),
        _zip({"x.npy": _npy(claim % 2**62)}),
        _zip({"x.npy": _npy(claim % -1)}),
        _zip({"x.npy": _npy(b" " * 60_000)}),
        _zip(
            {
                "x.npy": _npy(b"{'descr': '|O', 'fortran_order': False, 'shape': (), }")
                + b"cos\nsystem\n(S'true'\ntR."
            }
        ),
        _zip({"x.npy": bomb, "y.npy": bomb}, zipfile.ZIP_DEFLATED),
        _zip({"../../x.npy": _npy(claim % 1)}),
    ]


def _image_nasty() -> list[bytes]:
    def png(width: int, height: int) -> bytes:
        buffer = io.BytesIO()
        Image.new("L", (1, 1)).save(buffer, "png")
        found = buffer.getvalue()
        import zlib

        head = b"IHDR" + struct.pack(">II", width, height) + found[24:29]
        return found[:12] + head + struct.pack(">I", zlib.crc32(head)) + found[33:]

    eps = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\n(x) print\n%%EOF\n"
    return [
        b"",
        b"\x89PNG\r\n\x1a\n",
        b"GIF89a",
        b"BM",
        b"P6 1",
        b"P6 99999999 99999999 255 x",
        b"\xff\xd8\xff",
        b"II*\0",
        png(0, 0),
        png(2**31 - 1, 1),
        png(13_000, 13_000),
        png(100_000, 100_000),
        eps,
    ]


def _encoded() -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (4, 4), 7).save(buffer, "png")
    return buffer.getvalue()


def _tables() -> list[Any]:
    labels, owners = pa.array([0, 1] * 3), pa.array(list("aabbcc"))
    names = {b"huggingface": as_json({"info": {"features": {"label": {"names": ["one", "two"]}}}})}
    contents = [
        pa.array(
            [{"bytes": _encoded(), "path": None}] * 6,
            pa.struct([("bytes", pa.binary()), ("path", pa.string())]),
        ),
        pa.array([[0.5, 1.5]] * 6),
        pa.array([[[[1, 2, 3]] * 5] * 5] * 6, pa.list_(pa.list_(pa.list_(pa.uint8())))),
    ]
    tables = [pa.table({"image": content, "label": labels, "owner": owners}) for content in contents]
    return [tables[0].replace_schema_metadata(names), *tables[1:]]


def _columns() -> st.SearchStrategy[Any]:
    """Tables whose columns are of any type."""
    odd = [
        pa.array([1, 2] * 3, pa.int8()),
        pa.array([None] * 6),
        pa.array([0.5, float("nan")] * 3),
        pa.array([True, False] * 3),
        pa.array([2**64 - 1] * 6, pa.uint64()),
        pa.array(["a", None] * 3),
        pa.array([b"", b"x"] * 3),
        pa.array([[], [1]] * 3),
        pa.array([[[]]] * 6),
        pa.array([[None]] * 6),
        pa.array([["a"]] * 6),
        pa.array([{}] * 6),
        pa.array([{"bytes": None}] * 6),
        pa.array([{"bytes": 3}] * 6),
        pa.array(["a", "b"] * 3).dictionary_encode(),
        pa.array([[1, 2]] * 6, pa.list_(pa.int64(), 2)),
        pa.array([1.5] * 6, pa.float16()),
        pa.array(["x\0"] * 6, pa.large_string()),
        pa.array([3] * 6, pa.date32()),
        pa.array([3] * 6, pa.time64("us")),
        pa.array([3] * 6, pa.timestamp("ns", tz="UTC")),
        pa.array([1] * 6, pa.decimal128(9, 2)),
        pa.array([[("a", 1)]] * 6, pa.map_(pa.string(), pa.int32())),
        pa.array([_encoded()] * 6),
        pa.array([_encoded()] * 6, pa.large_binary()),
        pa.array(["é" * 9] * 6),
        pa.nulls(6, pa.binary()),
        pa.array([[1e308]] * 6),
        pa.array([[float("inf")]] * 6),
        pa.array([-1] * 6),
        pa.array([10**12] * 6),
    ]
    known = _tables()[0]
    column = st.sampled_from(
        [*odd, *(table.column(name).chunk(0) for table in _tables() for name in table.column_names)]
    )
    names = [
        None,
        b"",
        b"null",
        b"[]",
        deep_json(),
        b"9" * 5000,
        as_json({"info": {"features": {"label": {"names": [1, 1]}}}}),
        as_json({"info": {"features": {"label": {"names": "ab"}}}}),
        as_json({"info": {"features": {"label": {"names": [{}, []]}}}}),
        as_json({"info": {"features": {"label": {"names": ["a", "b", "c", "a\n"]}}}}),
    ]

    def table(image: Any, label: Any, owner: Any, about: bytes | None) -> Any:
        made = pa.table({"image": image, "label": label, "owner": owner})
        return made.replace_schema_metadata({b"huggingface": about} if about is not None else None)

    good = [st.just(known.column(name).chunk(0)) for name in known.column_names]
    return st.builds(table, *(st.one_of(column, right) for right in good), st.sampled_from(names))


def _parquet(table: Any) -> bytes:
    buffer = io.BytesIO()
    try:
        pq.write_table(table, buffer)
    except (pa.ArrowException, ValueError):  # a type that Parquet hasn't
        buffer = io.BytesIO()
        pq.write_table(pa.table({"label": [1]}), buffer)
    return buffer.getvalue()


def _stream(table: Any) -> bytes:
    buffer = io.BytesIO()
    with pa.ipc.new_stream(buffer, table.schema) as writer:
        writer.write_table(table)
    return buffer.getvalue()
