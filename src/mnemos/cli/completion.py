"""Shell completion without PyTorch: commands from a file in the package, values from the index of parts.

The completion scripts of Typer call `mnemos` with the words so far. Click walks through the commands to find
the parameter that is being completed; here it meets stand-ins of the commands (`stand_in`), whose parameters
complete names of parts, recipes, runs, dotted fields and their values. `python tools/reference.py` renews the
list of commands.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable
from functools import cache, partial
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from mnemos.lookup.fields import complete_field
from mnemos.lookup.find import field_options
from mnemos.lookup.index import shipped
from mnemos.lookup.kinds import KINDS

COMMANDS_FILE = Path(__file__).with_name("commands.json")
"""The commands and their options, as `commands_text` writes them."""

_DEVICES = ("auto", "cpu", "cuda", "xpu", "mps")
Found = Iterable[tuple[str, str]]
"""Completions, each with a line of help."""


def commands_text() -> str:
    """All commands with their options and arguments as JSON; the commands are imported, and PyTorch."""
    from mnemos.cli.app import COMMANDS, load

    facts = {name: _command_facts(load(name)) for name in COMMANDS}
    return json.dumps(facts, indent=1, ensure_ascii=False) + "\n"


def _command_facts(command: click.Command) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "params": [_param_facts(param) for param in command.params if not getattr(param, "hidden", False)]
    }
    if isinstance(command, click.Group):
        inner = command.commands.items()
        facts["commands"] = {name: {"help": c.help or "", **_command_facts(c)} for name, c in inner}
    return facts


def _param_facts(param: click.Parameter) -> dict[str, Any]:
    facts: dict[str, Any] = {"name": param.name, "nargs": param.nargs}
    if isinstance(param, click.Option):
        facts |= {"opts": [*param.opts, *param.secondary_opts], "flag": param.is_flag}
        facts["help"] = param.help or ""
    if isinstance(param.type, click.Choice):
        facts["choices"] = list(map(str, param.type.choices))
    return facts


@cache
def stand_in(name: str) -> click.Command:
    """A command that has the parameters of the real one, and can only be completed."""
    facts = json.loads(COMMANDS_FILE.read_text(encoding="utf-8")).get(name, {"params": []})
    return _stand_in(name, name, facts)


def _stand_in(path: str, name: str, facts: dict[str, Any]) -> click.Command:
    params = [_param(path, param) for param in facts["params"]]
    words = facts.get("help", "").partition("\n")[0]
    if "commands" in facts:
        inner = {key: _stand_in(f"{path} {key}", key, value) for key, value in facts["commands"].items()}
        return click.Group(name, commands=inner, params=params, help=words)
    return click.Command(name, params=params, help=words)


def _param(command: str, facts: dict[str, Any]) -> click.Parameter:
    complete = _completer(command, facts)
    items = partial(_items, complete)
    if "opts" not in facts:
        return click.Argument([facts["name"]], nargs=facts["nargs"], required=False, shell_complete=items)
    flag, nargs = facts["flag"], facts["nargs"]
    named = [facts["name"], *facts["opts"]]
    if flag:
        return click.Option(named[:2], is_flag=True, help=facts["help"])
    return click.Option(named, nargs=nargs, multiple=True, help=facts["help"], shell_complete=items)


def _items(
    complete: Callable[[list[str], str], Found], ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """The completions of the word that is being typed."""
    given = ctx.params.get(param.name or "")
    before = [str(word) for word in given] if isinstance(given, tuple | list) else []
    return [CompletionItem(value, help=help or None) for value, help in complete(before, incomplete)]


def _completer(command: str, facts: dict[str, Any]) -> Callable[[list[str], str], Found]:
    """What completes a parameter of a command."""
    if "choices" in facts:
        return lambda _, word: _begins([(choice, "") for choice in facts["choices"]], word)
    option, name = facts.get("opts", [""])[0], facts["name"]
    kind = {"--method": "methods", "--loss": "losses", "--engine": "engines", "--track": "sinks"}.get(option)
    if option == "--model" and command in ("run", "pretrain"):
        kind = "models"
    if option == "--data":
        return lambda _, word: [*_begins(_names("data"), word), *_files(word, "")]
    if kind is not None:
        return lambda _, word: _begins(_names(kind), word)
    if option == "--device":
        return lambda _, word: _begins(
            [(device, "") for device in ("auto", "cpu", "cuda", "xpu", "mps")], word
        )
    if option:
        return lambda _, word: _files(word, "")
    if command == "list":
        return lambda _, word: _begins([(key, kind.line) for key, kind in KINDS.items()], word)
    if command == "show":
        return lambda _, word: _begins(_all_names(), word) or complete_field(shipped(), word, values=False)
    if command == "reproduce":
        return lambda _, word: [*_begins(_recipes(), word), *_files(word, ".yaml")]
    if name == "words" or command in ("run", "compare", "sweep", "partition", "timeline"):
        return _words
    return lambda _, word: _files(word, "")  # a run, or files


def _words(before: list[str], word: str) -> Found:
    """A recipe, a dotted field, or a field's value.

    Bash splits at '=': then the field is the word before, and only the value is completed.
    """
    if word in ("", "=") and before and any(field_options(before[-1], shipped())):  # click removes the '='
        return _values(f"{before[-1]}=")
    if before and before[-1] == "=" and len(before) > 1:
        return _values(f"{before[-2]}={word}")
    recipes = [] if before or "=" in word else _files(word, ".yaml")
    return [*recipes, *complete_field(shipped(), word)]


def _values(word: str) -> Found:
    """The values of a field, without the field's name."""
    return [(found.partition("=")[2], words) for found, words in complete_field(shipped(), word)]


def _begins(names: Found, word: str) -> list[tuple[str, str]]:
    return [(name, words) for name, words in names if name.startswith(word)]


def _names(kind: str) -> Found:
    return [(part.name, part.line) for part in shipped().of_kind(kind)]


def _all_names() -> Found:
    found = [(part.name, part.line) for kind in KINDS for part in shipped().of_kind(kind)]
    return dict(reversed(found)).items()


def _recipes() -> Found:
    from mnemos.studies.reproduce.names import recipe_names

    return [(name, "") for name in recipe_names()]


def _is_run(path: str) -> bool:
    return (Path(path) / "experiment.yaml").exists()


def _files(word: str, suffix: str) -> list[tuple[str, str]]:
    """Files with a suffix, and folders: those of runs as they are, others with a slash at the end."""
    folder = Path(word).parent if word and not word.endswith("/") else Path(word or ".")
    start = word[: word.rfind("/") + 1]
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError:
        return []
    found = []
    for entry in entries:
        name = f"{start}{entry.name}"
        if not name.startswith(word) or (entry.name.startswith(".") and not word.endswith(".")):
            continue
        if entry.is_dir():
            found.append((name if _is_run(name) else f"{name}/", ""))
        elif name.endswith(suffix):
            found.append((name, ""))
    return found
