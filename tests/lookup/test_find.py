"""Looking up parts and fields by the words that users type."""

import subprocess
import sys

import pytest

import mnemos
from mnemos.errors import ConfigError
from mnemos.lookup.fields import complete_field
from mnemos.lookup.find import describe, parts
from mnemos.lookup.index import shipped


def test_parts_of_a_kind():
    losses = mnemos.parts("losses")
    assert {"ce", "wsm", "tce"} <= {part.name for part in losses}
    assert losses == parts("loss")
    assert "wsm        Cross-entropy whose softmax weights each class" in str(losses)
    assert {part.kind for part in parts()} >= {"methods", "losses", "engines", "sinks"}


def test_a_part():
    wsm = mnemos.describe("wsm")
    assert (wsm.kind, wsm.name, wsm.card) == ("losses", "wsm", "docs/methods/wsm.md")
    assert "log Σ_c β_c exp f_c" in wsm.text
    assert wsm.example == "mnemos run --loss wsm"
    assert wsm.options[0].choices == ("train", "all", "tasks")
    assert all(len(line) <= 80 for line in str(wsm).splitlines())


def test_a_name_of_two_kinds():
    method = describe("scaffold")
    assert method.kind == "methods"
    assert method.also == ("corrections/scaffold",)
    assert describe("corrections/scaffold").kind == "corrections"
    assert describe("correction/scaffold").kind == "corrections"


def test_a_field():
    momentum = describe("method.server.momentum")
    assert [part for part, _ in momentum.found] == ["server-steps/sgd"]
    assert "number ≥ 0 and < 1; default 0.0" in str(momentum)
    assert describe("local").found[0][1].options  # the group of options, not the buffer policy of this name
    assert describe("local").also == ("buffers/local",)


def test_an_option_of_some_part_and_a_guess():
    assert "optimizers/sgd" in [part for part, _ in describe("nesterov").found]
    assert describe("lr").path == "local.lr"


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("scafold", "there is no part, field or kind 'scafold'; did you mean 'scaffold'?"),
        ("losses/wms", "there is no loss 'wms'; did you mean 'wsm'?"),
        ("method.server.momentm", "no 'momentm' in method.server; did you mean 'momentum'? allowed: beta1"),
        ("methd.loss", "no 'methd'; did you mean 'method'?"),
        ("loses/wsm", "there is no kind of parts 'loses'; did you mean 'losses'?"),
        ("json:dumps", "'json:dumps' is not a part; allowed: Augmentation"),
    ],
)
def test_unknown_names(name, sentence):
    with pytest.raises(ConfigError, match=r"there is no|is not a part") as error:
        describe(name)
    assert sentence in str(error.value)


def test_an_unknown_kind():
    with pytest.raises(ConfigError, match="did you mean 'models'"):
        parts("modles")


def test_an_own_class():
    found = describe("support.unlucky:KillsOnce")
    assert found.origin.endswith("unlucky.py")
    assert found.kind == "losses"


@pytest.mark.parametrize(
    ("word", "found"),
    [
        ("meth", ["method=", "method."]),
        ("local.lr", ["local.lr=0.05"]),
        ("method.loss=ws", ["method.loss=wsm"]),
        ("method.correction.opt", ["method.correction.option=I", "method.correction.option=II"]),
        ("measures=[forg", ["measures=[forgetting]"]),
        ("guard.e", ["guard.enabled=true", "guard.enabled=false"]),
        ("checkp", ["checkpoints.keep=0"]),
        ("nothing", []),
    ],
)
def test_fields_are_completed(word, found):
    assert [name for name, _ in complete_field(shipped(), word)] == found


def test_looking_up_imports_neither_torch_nor_pandas():
    code = (
        "import sys, mnemos; str(mnemos.parts()); "
        "from mnemos.lookup.index import shipped; shipped().named('wsm'); "
        "sys.exit(bool({'torch', 'pandas', 'pydantic'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_lists_in_a_text_are_wrapped():
    """Their items, one below the other; formulas keep their lines."""
    lines = str(mnemos.describe("measures/forgetting")).splitlines()
    assert all(len(line) <= 80 for line in lines)
    first = next(index for index, line in enumerate(lines) if line.startswith("- `before_accuracy`"))
    assert lines[first + 1] == "  the union;"
    assert lines[first + 2].startswith("- `after_accuracy`")
