"""Setting one option of any preset changes that option and nothing else, however it is written.

A *pair* is a preset, possibly with another part in one of its places, and one option of it at any depth.
What an option's new value leads to is worked out without defaults: every setting of the preset is written
out, the option is replaced there, and that is what each way of writing must come to.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from functools import cache
from typing import Annotated, Any, NamedTuple

import pytest
from pydantic import Field

from mnemos.cli.options import experiment_from
from mnemos.common.options import NestedField, Options, Part, nested_fields
from mnemos.errors import ConfigError
from mnemos.experiment.experiment import Experiment, load_experiment
from mnemos.experiment.marked import Difference, differences
from mnemos.experiment.overrides import dump_yaml, flatten, inline_yaml, parse_yaml
from mnemos.methods.head import Head
from mnemos.methods.meta import Meta
from mnemos.methods.part import ServerStep, Term, server_steps
from mnemos.methods.part import terms as known_terms
from mnemos.methods.presets.fedavg import FedAvg
from mnemos.methods.presets.fedopt import FedAvgM, ServerAdam, ServerSgd, ServerYogi
from mnemos.methods.presets.fedprox import Proximal
from mnemos.methods.presets.fedspace import Mix
from mnemos.methods.presets.moon import Contrastive
from mnemos.models.mlp import MLP
from mnemos.optim.local import Local
from mnemos.optim.optimizer import Optimizer, optimizers
from mnemos.optim.schedule import Cosine, Schedule, Steps, schedules
from mnemos.optim.sgd import Sgd
from mnemos.screens.screen import screens as known_screens
from mnemos.studies.reproduce.recipe import Recipe
from mnemos.studies.study import Study

# --- presets of a user's own --------------------------------------------------------------------------


class Grip(Options):
    """Options of options."""

    force: float = 1.0
    slip: float = 0.0


class Hold(Options):
    """A group with a group and a part, whose defaults aren't those of their classes."""

    grip: Grip = Grip(force=3.0, slip=0.25)
    schedule: Annotated[Schedule, schedules] = Cosine(floor=0.125)
    tight: bool = True


class OwnStep(ServerSgd):
    """A server step with a group; nobody has registered it."""

    hold: Hold = Hold(grip=Grip(force=5.0, slip=0.5), tight=False)


class OwnMethod(FedAvg):
    """A preset whose parts, groups and lists all have options that aren't their classes' own."""

    server: Annotated[ServerStep, server_steps] = OwnStep(lr=0.3, momentum=0.8)
    head: Head = Head(temperature=0.2)
    meta: Meta | None = Meta(samples=7, lr=0.5)
    terms: tuple[Annotated[Term, known_terms], ...] = (Proximal(mu=0.5), Contrastive(mu=2.0, temperature=0.1))
    made: Annotated[Optimizer, optimizers] = Field(default_factory=lambda: Sgd(momentum=0.9, nesterov=True))
    told: Annotated[Schedule, schedules] = Field({"name": "step", "size": 7}, validate_default=True)
    maybe: Annotated[Schedule, schedules] | None = Steps(size=5, gamma=0.25)
    table: dict[str, float] = Field({"a": 1.0, "b": 2.0})


class Heir(FedAvgM):
    """A subclass of a preset that changes nothing."""


class OwnModel(MLP):
    """A model with a group."""

    hold: Hold = Hold()


USERS = {"method": ["test_presets:OwnMethod", "test_presets:Heir"], "model": ["test_presets:OwnModel"]}

# --- all pairs ----------------------------------------------------------------------------------------

REQUIRED: dict[str, Any] = {
    "path": "torch.optim:SGD",
    "samples": 5,
    "rate": 0.5,
    "shape": [3, 8, 8],
    "kind": "float32",
    "classes": ["a", "b"],
    "mean": [0.5],
    "std": [0.5],
    "who": [0],
    "factors": [{"client": 0, "factor": 0.5}],
    "words": ["a", "b"],
}
"""Options without a default, by their names."""
MIXED = {
    "blend": [{"weighting": "samples", "share": 1.0}, {"weighting": "uniform", "share": 1.0}],
    "mixed": [{"model": "mlp"}, {"model": "logistic"}],
    "scaled": "samples",
}
"""What there is to mix or to change, by the name of the part that does."""
NEEDED = {"huggingface": {"path": "folder"}, "representation": "prototypes"}
"""What else a part can't do without: an option, or an entry beside it in a list."""
TOGETHER = {"nesterov": ("momentum", 0.5), "clients": ("every", 1)}
"""What an option can't be set without: another one beside it."""
FIXED = {"data.repo", "engine.exact"}
"""Options that can't be another without a second one: of `huggingface` (or `path`), and of `vmap`."""


class Pair(NamedTuple):
    """One option of one preset."""

    settings: dict[str, Any]
    """The preset, in as few words as there are."""
    option: str
    """Dotted; of a list of parts, the list itself."""
    value: Any
    expected: dict[str, Any]
    """All settings of the experiment."""
    own: bool
    """Whether it is an option of the preset as it is, without another part in one of its places."""


def put(tree: dict[str, Any], dotted: str, value: Any) -> dict[str, Any]:
    """A copy of a nested mapping in which one setting is another; missing mappings are made."""
    *path, leaf = dotted.split(".")
    result: dict[str, Any] = copy.deepcopy(tree)
    node: Any = result
    for step in path:
        key: Any = int(step) if isinstance(node, list) else step
        inner = node[key] if isinstance(node, list) else node.get(step)
        node[key] = inner = {} if inner is None else {"name": inner} if isinstance(inner, str) else inner
        node = inner
    node[leaf] = value
    return result


def get(tree: Any, dotted: str) -> Any:
    for step in dotted.split("."):
        tree = tree[int(step) if isinstance(tree, list) else step]
    return tree


def written(options: dict[str, Any]) -> dict[str, Any]:
    """All settings of an experiment."""
    return Experiment.parse(options).model_dump(mode="json")


@cache
def _written(options: str) -> dict[str, Any]:
    return written(json.loads(options))


def places(kind: type[Options] = Experiment, prefix: str = "") -> Iterator[tuple[str, NestedField]]:
    """The fields of an experiment, and of its groups, that hold parts."""
    for name, slot in nested_fields(kind).items():
        if slot.choices is None and not slot.many:
            yield from places(slot.kind, f"{prefix}{name}.")
        elif slot.choices is not None:
            yield f"{prefix}{name}", slot


def named(kind: type[Part], name: str) -> dict[str, Any]:
    """A part in as few words as there are: its name, and what it can't do without."""
    missing = {field: info for field, info in kind.model_fields.items() if info.is_required()}
    given = {field: MIXED[name] if field == "of" else REQUIRED[field] for field in missing}
    needed = NEEDED.get(name)
    return {"name": name, **given, **(needed if isinstance(needed, dict) else {})}


def kinds(slot: NestedField, place: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """All parts of a kind, each in as few words as there are."""
    assert slot.choices is not None
    for name in [*slot.choices.names(), *USERS.get(place, [])]:
        yield name, named(slot.choices[name], name)


def leaves(options: Options, prefix: str) -> Iterator[str]:
    """The dotted names of all options at any depth that aren't parts or groups.

    A group that isn't there and isn't written, either, is put in its place by `inside`.
    """
    written = options.model_dump()
    for name in type(options).model_fields:
        value = getattr(options, name)
        if isinstance(value, Options):
            yield from leaves(value, f"{prefix}{name}.")
        elif name in written:
            yield f"{prefix}{name}"


def inner_slots(options: Options, prefix: str) -> Iterator[tuple[str, NestedField, Any]]:
    """The places inside a part or group, at any depth, that hold parts or groups."""
    for name, slot in nested_fields(type(options)).items():
        value = getattr(options, name)
        yield f"{prefix}{name}", slot, value
        if isinstance(value, Options):
            yield from inner_slots(value, f"{prefix}{name}.")


def at(experiment: Experiment, dotted: str) -> Any:
    node: Any = experiment
    for step in dotted.split("."):
        node = node[int(step)] if isinstance(node, tuple) else getattr(node, step)
    return node


LISTED = ["flip", "proximal", "contrastive", "free-riders", "class-accuracy"]
"""Names of parts that go into lists."""


def values_for(found: Any) -> Iterator[Any]:
    """Other values that an option may take, by the one it has."""
    if isinstance(found, bool):
        yield not found
    elif isinstance(found, int | float):
        yield from (found + 1, found * 2, found / 2, found + 0.125, (found + 1) / 2, 3, 0.25, found - 1, 0)
    elif isinstance(found, list):
        yield from ([], [3], [0.25], [7, 5], [3, 4], ["x"], ["x", "y", "z"], *([name] for name in LISTED))
        yield [{"owner": "x", "train": 3}]
        yield [{"client": 3, "factor": 2.0}]
        yield [{"model": "mlp"}, {"model": "mlp", "share": 2.0}]
        yield [{"weighting": "samples", "share": 2.0}, {"weighting": "uniform", "share": 1.0}]
    elif isinstance(found, dict):
        yield from ({"3": 2.0}, {"x": 1.0})
    yield from (2, 0.75, 0.25, "x", True, ["x"], {"samples": 5}, {})


def words_for(sentences: list[str]) -> list[str]:
    """The words that an option may be, from what was said of one that it may not."""
    allowed = next((text.partition("allowed: ")[2] for text in sentences if "allowed: '" in text), "")
    return [word.strip("'") for word in allowed.replace(" or ", ", ").split(", ") if word]


WORKED: dict[tuple[str, str], Any] = {}
"""The other value that was found for an option of a name and a value, to be tried first the next time."""


def other_value(settings: dict[str, Any], option: str) -> tuple[Any, dict[str, Any]] | None:
    """Another value of an option, and all settings with it; None if there is no value that goes alone."""
    whole = _written(json.dumps(settings))
    found, leaf = get(whole, option), option.rpartition(".")[-1]
    sentences: list[str] = []

    def tried() -> Iterator[Any]:
        if (leaf, str(found)) in WORKED:
            yield WORKED[leaf, str(found)]
        yield from values_for(found)
        yield from words_for(sentences)

    for value in tried():
        try:
            result = written(put(whole, option, value))
        except ConfigError as error:
            sentences.append(str(error))
            continue
        # What 2 becomes of a float is 2.0; nothing else may become another.
        if result != whole and result == put(whole, option, get(result, option)):
            WORKED[leaf, str(found)] = value
            return value, result
    return None


def pair(settings: dict[str, Any], option: str, own: bool = True) -> Pair | str:
    """The option with another value; its name if there is none."""
    place, _, leaf = option.rpartition(".")
    found = other_value(settings, option)
    if found is None and leaf in TOGETHER:
        needed, value = TOGETHER[leaf]
        settings = put(settings, f"{place}.{needed}", value)
        found = other_value(settings, option)
    if found is None:
        return option
    value, expected = found
    listed = next((place for place in parents(option) if isinstance(get(expected, place), list)), None)
    if listed is None:
        return Pair(settings, option, value, expected, own)
    return Pair(settings, listed, get(put(settings, option, value), listed), expected, own)


def parents(option: str) -> list[str]:
    steps = option.split(".")
    return [".".join(steps[:count]) for count in range(1, len(steps))]


@cache
def pairs(place: str, name: str) -> tuple[list[Pair], list[str]]:
    """All pairs of a preset, and the options for which no other value goes without a change elsewhere."""
    found: list[Pair | str] = []
    if not place:
        found += [pair({}, option) for option in leaves(Experiment(), "")]
    elif (slot := dict(places())[place]).many:
        words = dict(kinds(slot, place))[name]
        settings = put({}, place, [words])
        found += [
            pair(settings, option)
            for option in leaves(at(Experiment.parse(settings), f"{place}.0"), f"{place}.0.")
        ]
    else:
        settings = put({}, place, dict(kinds(slot, place))[name])
        part = at(Experiment.parse(settings), place)
        found += [pair(settings, option) for option in leaves(part, f"{place}.")]
        for inner, inner_slot, value in inner_slots(part, f"{place}."):
            found += inside(settings, inner, inner_slot, value)
    return [one for one in found if isinstance(one, Pair)], [one for one in found if isinstance(one, str)]


def inside(settings: dict[str, Any], place: str, slot: NestedField, value: Any) -> Iterator[Pair | str]:
    """Pairs of a preset with another part in one of its places."""
    if slot.choices is None:
        if value is None:
            missing = [field for field, info in slot.kind.model_fields.items() if info.is_required()]
            yield from other(settings, place, {field: REQUIRED[field] for field in missing})
        return
    for name, words in kinds(slot):
        if slot.many:
            yield from other(settings, place, [words, *listed_with(name)], ".0")
        elif value is None or type(value).name != name:
            yield from other(settings, place, words)


def listed_with(name: str) -> list[str]:
    needed = NEEDED.get(name)
    return [needed] if isinstance(needed, str) else []


def other(settings: dict[str, Any], place: str, words: Any, entry: str = "") -> Iterator[Pair | str]:
    changed = put(settings, place, words)
    try:
        part = at(Experiment.parse(changed), f"{place}{entry}")
    except ConfigError:
        return  # these two don't go together
    yield from (pair(changed, option, own=False) for option in leaves(part, f"{place}{entry}."))


PRESETS = [("", "the defaults")] + [
    (place, name) for place, slot in places() for name, _ in kinds(slot, place)
]


# --- all ways to write --------------------------------------------------------------------------------


def flat(one: Pair) -> dict[str, Any]:
    """The preset as dotted changes."""
    return {name: value for name, value in flatten(one.settings) if name != one.option}


def same_names(one: Pair) -> dict[str, Any]:
    """A mapping that names each part on the way to the option."""
    tree = put(one.settings, one.option, one.value)
    for place in parents(one.option):
        name = get(one.expected, place).get("name")
        if name is not None:
            tree = put(tree, f"{place}.name", name)
    return tree


def on_command_line(one: Pair, changes: dict[str, Any]) -> Experiment:
    """Names by shortcuts such as --method, everything else by words such as method.server.lr=0.5."""
    shortcuts = {name: value for name, value in flat(one).items() if name.endswith(".name")}
    words = {name: value for name, value in flat(one).items() if name not in shortcuts}
    given = [f"{name}={inline_yaml(value)}" for name, value in {**words, **changes}.items()]
    return experiment_from(given, shortcuts)


def study(one: Pair, **form: Any) -> Experiment:
    (case,) = Study.parse({"base": one.settings, "seeds": [one.expected["seed"]], **form}).cases()
    return case.experiment


def recipe(one: Pair) -> Experiment:
    (cell,) = Recipe.parse(
        {
            "title": "t",
            "item": "i",
            "paper": {"citation": "c"},
            "base": {"rounds": 50},
            "changes": flat(one),
            "rows": {"row": {one.option: one.value}},
            "columns": {"column": {}},
        }
    ).of(1.0)
    return cell.experiment


WAYS: dict[str, Callable[[Pair], Experiment]] = {
    "a mapping": lambda one: Experiment.parse(put(one.settings, one.option, one.value)),
    "a mapping with the same names": lambda one: Experiment.parse(same_names(one)),
    "YAML": lambda one: Experiment.parse(parse_yaml(dump_yaml(put(one.settings, one.option, one.value)))),
    "dotted": lambda one: load_experiment({}, {**flat(one), one.option: one.value}),
    "dotted, the option first": lambda one: load_experiment({}, {one.option: one.value, **flat(one)}),
    "whole, then dotted": lambda one: load_experiment({}, {**one.settings, one.option: one.value}),
    "a file and a dotted change": lambda one: load_experiment(one.settings, {one.option: one.value}),
    "a file and a mapping": lambda one: load_experiment(one.settings, put({}, one.option, one.value)),
    "override": lambda one: Experiment.parse(one.settings).override({one.option: one.value}),
    "override of another": lambda one: Experiment().override({**flat(one), one.option: one.value}),
    "command line": lambda one: on_command_line(one, {one.option: one.value}),
    "command line, a mapping": lambda one: on_command_line(one, put({}, one.option, one.value)),
    "grid": lambda one: study(one, grid={one.option: [one.value]}),
    "list": lambda one: study(one, list=[{one.option: one.value}]),
    "variants": lambda one: study(one, variants={"v": {one.option: one.value}}),
    "random": lambda one: study(one, random={"trials": 1, "fields": {one.option: [one.value]}}),
    "recipe": recipe,
}


def ways(number: int, one: Pair) -> list[str]:
    """All ways for a preset's own options; for those of other parts in it two, in turn."""
    return list(WAYS) if one.own else [way for turn, way in enumerate(WAYS) if (turn + number) % 8 == 0]


@pytest.mark.parametrize(("place", "name"), PRESETS)
def test_one_option_changes_itself_and_nothing_else(place, name):
    wrong = []
    for number, one in enumerate(pairs(place, name)[0]):
        for way in ways(number, one):
            try:
                found: Any = WAYS[way](one).model_dump(mode="json")
            except ConfigError as error:
                found = str(error)
            if found != one.expected:
                wrong.append(f"{json.dumps(one.settings)}, {one.option}={one.value}, as {way}: {found}")
    assert not wrong, f"{len(wrong)} wrong, such as {wrong[0]}"


def test_the_pairs_are_all_there_are():
    """Every part of every kind, and every option of it."""
    found = [pairs(place, name) for place, name in PRESETS]
    own, others = (sum(one.own is mine for tried, _ in found for one in tried) for mine in (True, False))
    assert {option for _, left in found for option in left} == FIXED
    counts = f"{len(PRESETS)} presets, {own} options of their own, {others} of other parts in them"
    assert len(PRESETS) >= 105, counts
    assert own >= 480, counts
    assert others >= 1600, counts


@cache
def marks(settings: str) -> dict[str, Difference]:
    """What is marked of a preset, which is the same for all of its options."""
    return differences(Experiment.parse(json.loads(settings)))


@pytest.mark.parametrize(("place", "name"), PRESETS)
def test_one_option_is_marked_and_nothing_else(place, name):
    """Beside what the preset is marked for, which is its name."""
    for one in pairs(place, name)[0]:
        if one.own:
            after = Experiment.parse(one.expected)
            was, now = marks(json.dumps(one.settings)), differences(after)
            changed = [field for field in {**was, **now} if was.get(field) != now.get(field)]
            assert changed
            assert all(field == one.option or field.startswith(f"{one.option}.") for field in changed)
            assert Experiment.parse(parse_yaml(after.show())) == after


# --- the rules, one by one ----------------------------------------------------------------------------


def method(*changes: dict[str, Any], **options: Any) -> Any:
    """The method of an experiment with these options, and with changes applied one after the other."""
    experiment = Experiment.parse({"method": options})
    for change in changes:
        experiment = experiment.override(change)
    return experiment.method


def test_the_presets_that_lost_their_options():
    """As they are in the papers: FedAvgM's β is 0.9, the head of FedSpace and PASS has rotations and a
    temperature of 0.1, UGA's rate at the server is 0.1."""
    assert method(name="fedavgm", server={"lr": 0.5}).server == ServerSgd(lr=0.5, momentum=0.9)
    assert method(name="fedspace", head={"temperature": 0.2}).head == Head(rotations=True, temperature=0.2)
    assert method(name="pass", head={"rotations": False}).head == Head(rotations=False, temperature=0.1)
    assert method(name="uga", server={"momentum": 0.5}).server == ServerSgd(lr=0.1, momentum=0.5)


def test_the_same_name_keeps_the_presets_options_and_another_name_does_not():
    for same in ("sgd", {"name": "sgd"}, {"name": "mnemos.methods.presets.fedopt:ServerSgd"}):
        assert method(name="fedavgm", server=same).server == ServerSgd(momentum=0.9)
    assert method(name="fedavgm", server={"name": "sgd", "momentum": 0}).server == ServerSgd()
    assert method(name="fedavgm", server={"name": "adam", "beta2": 0.5}).server == ServerAdam(beta2=0.5)
    assert method(name="fedavgm", server="adam").server == ServerAdam()
    assert method({"method.server": {"name": "adam"}}, name="fedavgm").server == ServerAdam()
    assert method({"method.server.name": "adam"}, name="fedavgm").server == ServerAdam()


def test_a_whole_part_begins_with_the_presets_own_again():
    tuned = {"name": "fedavgm", "server": {"lr": 0.5, "momentum": 0.5}}
    for whole in ("sgd", {"name": "sgd"}):
        assert method({"method.server": whole}, **tuned).server == ServerSgd(momentum=0.9)
    assert method({"method.server": {"lr": 0.25}}, **tuned).server == ServerSgd(lr=0.25, momentum=0.5)
    assert method({"method": {"server": {"lr": 0.25}}}, **tuned).server == ServerSgd(lr=0.25, momentum=0.5)


@pytest.mark.parametrize("spelt_out", [False, True])
def test_another_preset_keeps_what_was_set_and_not_what_the_old_preset_had(spelt_out):
    """However much of the old preset a file spells out."""

    def change(options: dict[str, Any], **changes: Any) -> Any:
        base = {"method": options}
        base = written(base) if spelt_out else base
        return load_experiment(base, {f"method.{name}": value for name, value in changes.items()}).method

    tuned = {"name": "fedavgm", "server": {"lr": 0.5}}
    assert change(tuned, name="uga").server == ServerSgd(lr=0.5)  # and not FedAvgM's momentum
    assert change(tuned, name="fedopt").server == ServerAdam(lr=0.5)
    assert change(tuned, name="fedspace").server == Mix()  # which has no rate
    assert change({"name": "uga", "server": {"momentum": 0.5}}, name="fedavgm").server == ServerSgd(
        momentum=0.5
    )
    assert change({"name": "fedavgm"}, **{"server.name": "mix"}).server == Mix()
    chosen = {"name": "fedavg", "server": {"name": "yogi", "lr": 0.25}}
    assert change(chosen, name="fedavgm").server == ServerYogi(lr=0.25)
    assert change({"name": "fedspace"}, name="fedavg").head == Head()
    assert change({"name": "fedspace", "head": {"temperature": 0.5}}, name="fedavg").head == Head(
        temperature=0.5
    )
    assert change({"name": "fedavg", "meta": {"samples": 3}}, name="fedavgm").meta == Meta(samples=3)
    renamed = change(
        {"name": "fedavg", "head": {"temperature": 1.0}}, name="fedspace", **{"head.rotations": False}
    )
    assert renamed.head == Head(rotations=False, temperature=0.1)
    assert change({"name": "fedavg"}, name="fedspace", **{"head.temperature": 1.0}).head == Head(
        rotations=True, temperature=1.0
    )
    assert change({"name": "fedavg"}, name="fedavgm", **{"server.lr": 0.5}).server == ServerSgd(
        lr=0.5, momentum=0.9
    )


@pytest.mark.parametrize("spelt_out", [False, True])
def test_an_option_that_the_new_presets_part_lacks_is_refused_if_it_comes_with_the_name(spelt_out):
    base = written({"method": "fedavgm"}) if spelt_out else {"method": "fedavgm"}
    with pytest.raises(ConfigError, match=r"^method\.server\.lr: unknown field; allowed: rho"):
        load_experiment(base, {"method.name": "fedspace", "method.server.lr": 0.5})


def test_a_users_preset_keeps_its_own_at_any_depth():
    name = "test_presets:OwnMethod"
    own = OwnMethod()
    hold = method(name=name, server={"hold": {"grip": {"slip": 0.75}}}).server
    assert hold == OwnStep(lr=0.3, momentum=0.8, hold=Hold(grip=Grip(force=5.0, slip=0.75), tight=False))
    found = method(name=name, server={"hold": {"schedule": {"over": "epochs"}}}).server.hold
    assert found.schedule == Cosine(over="epochs", floor=0.125)
    assert method(name=name, meta={"lr": 0.25}).meta == Meta(samples=7, lr=0.25)
    assert method(name=name, meta=None).meta is None
    assert method(name=name, made={"momentum": 0.5}).made == Sgd(momentum=0.5, nesterov=True)
    assert method(name=name, told={"gamma": 0.25}).told == Steps(size=7, gamma=0.25)
    assert method(name=name, maybe={"size": 9}).maybe == Steps(size=9, gamma=0.25)
    assert load_experiment({"method": name}, {"method.table.a": 3.0}).method.table == {"a": 3.0, "b": 2.0}
    assert method(name=name, table={"a": 3.0}).table == {"a": 3.0}  # a table is a value like any other
    assert OwnMethod(server={"lr": 0.5}) == own.model_copy(update={"server": OwnStep(lr=0.5, momentum=0.8)})
    heir = method(name="test_presets:Heir", server={"lr": 0.5})
    assert (type(heir), heir.server) == (Heir, ServerSgd(lr=0.5, momentum=0.9))


def test_entries_of_a_list_keep_what_the_presets_entry_of_that_name_has():
    name = "test_presets:OwnMethod"
    assert method(name=name, terms=[{"name": "contrastive", "mu": 3.0}]).terms == (
        Contrastive(mu=3.0, temperature=0.1),
    )
    assert method(name=name, terms=["proximal", "curvature"]).terms == (
        Proximal(mu=0.5),
        known_terms.parse("curvature"),
    )
    assert method(name=name, terms=[]).terms == ()
    screens = Experiment.parse({"screens": [{"name": "norms", "most": 3}]}).screens
    assert screens == (known_screens.parse({"name": "norms", "most": 3, "beside": 1000.0}),)


def test_two_changes_of_one_part_mean_both():
    both = {"method": {"name": "fedavgm", "server": {"lr": 0.5}}, "method.server.momentum": 0.5}
    assert load_experiment({}, both).method.server == ServerSgd(lr=0.5, momentum=0.5)
    mapped = {"method": {"server": {"lr": 0.5}}, "method.server": {"momentum": 0.5}, "method.name": "fedavgm"}
    assert load_experiment({}, mapped).method.server == ServerSgd(lr=0.5, momentum=0.5)
    renamed = {"method": {"server": {"lr": 0.5}}, "method.server.name": "adam"}
    assert load_experiment({}, renamed).method.server == ServerAdam(lr=0.5)


def test_groups_as_objects_in_a_mapping():
    assert load_experiment({"local": Local(lr=0.5)}, {"local.batch": 8}).local == Local(lr=0.5, batch=8)


@pytest.mark.parametrize(("place", "name"), PRESETS)
def test_a_preset_that_is_written_out_is_the_same_experiment(place, name):
    for settings in {json.dumps(one.settings) for one in pairs(place, name)[0] if one.own}:
        experiment = Experiment.parse(json.loads(settings))
        again = Experiment.parse(parse_yaml(experiment.to_yaml()))
        assert again == experiment
        assert again.hash() == experiment.hash()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (
            {"name": "fedavgm", "server": {"rho": 1}},
            "method.server.rho: unknown field; allowed: lr, momentum",
        ),
        ({"name": "fedavgm", "server": {"lr": 0}}, "method.server.lr: found 0; allowed: > 0"),
        ({"name": "fedavgm", "server": {"name": "sdg"}}, "method.server: there is no server step 'sdg'; did"),
        ({"name": "fedavgm", "server": {"name": 3}}, "method.server: found the name 3; allowed: adagrad"),
        ({"name": "fedavgm", "server": 3}, "method.server: found 3; it takes a name or a mapping"),
        (
            {"name": "fedspace", "head": {"temprature": 1}},
            "method.head.temprature: unknown field; did you mean 'temperature'",
        ),
        ({"name": "fedspace", "head": 3}, "method.head: found 3; expected a mapping of fields; allowed: rot"),
        (
            {"name": "test_presets:OwnMethod", "server": {"hold": {"grip": {"forse": 1}}}},
            "method.server.hold.grip.forse: unknown field; did you mean 'force'? allowed: force, slip",
        ),
        (
            {"name": "test_presets:OwnMethod", "terms": ["proximal", {"name": "contrastive", "mu": -1}]},
            "method.terms.1.mu: found -1; allowed: ≥ 0",
        ),
    ],
    ids=str,
)
def test_a_mistake_in_an_option_of_a_presets_part(options, sentence):
    for write in (
        lambda: Experiment.parse({"method": options}),
        lambda: load_experiment({}, {f"method.{name}": value for name, value in flatten(options)}),
    ):
        with pytest.raises(ConfigError) as caught:
            write()
        assert str(caught.value).startswith(sentence)
