"""`mnemos federate`: train an experiment with data owners on other machines, over Flower."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from mnemos.cli.federation import journal, print_side, read_side, side_facts
from mnemos.cli.options import Json, Out, Quiet, Track, check_folder, experiment_from
from mnemos.cli.output import ending, report_run
from mnemos.cli.trusting import Trusted, asking
from mnemos.common.devices import AUTO, find_devices
from mnemos.common.extras import missing
from mnemos.display.terminal import errors
from mnemos.display.watch import watch
from mnemos.display.words import plural
from mnemos.errors import ConfigError
from mnemos.runs.run import Run
from mnemos.track.observe import observe

app = typer.Typer(
    help="Train where the data is: owners join over Flower, and their data stays with them.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
)

Home = Annotated[Path, typer.Option(help="Folder of the federation: keys, and the SuperLink's state.")]
Plain = Annotated[
    bool,
    typer.Option("--plain", help="Without TLS and keys: for a trial on one machine, never over a network."),
]

_PLAIN = "the connection is plain: anyone on the network can read and change what is sent"


@app.command()
def init(folder: Annotated[Path, typer.Argument(help="A new or empty folder.")]) -> None:
    """Write a federation's folder: an experiment to begin with, a guide, files for Flower and supervisors.

    For supervisors there are units of systemd, a container file, and a compose file for a trial.
    """
    from mnemos.deployment.init import write_federation

    check_folder(folder, "folder")
    write_federation(folder)
    typer.echo(f"{folder}/README.md says what to do next")


@app.command()
def keys(
    home: Annotated[Path, typer.Argument(help="Folder of the federation.")],
    owner: Annotated[list[str] | None, typer.Option(help="An owner's name; repeat it for several.")] = None,
    host: Annotated[
        list[str] | None, typer.Option(help="A host name or address of the server; repeat it for several.")
    ] = None,
    days: Annotated[int, typer.Option(min=1, help="How long the server's certificate is valid.")] = 365,
) -> None:
    """Create keys: a certificate for the server, if there is none yet, and a key pair for each owner.

    --host creates a new server certificate, for other hosts or another --days.
    """
    with _needs_flower():
        from mnemos.deployment.keys import CA, OWNERS, check_name, make_owner, make_server, renew_server
    check_folder(home, "home")
    names = owner or []
    for name in names:
        check_name(name)
        if names.count(name) > 1:
            raise ConfigError(f"found '{name}' twice", "owner")
        if (home / OWNERS / f"{name}.pub").exists():
            raise ConfigError(
                f"{home / OWNERS / name}.pub already exists; remove it to create a new key", "owner"
            )
    if not (home / CA).exists():
        hosts = dict.fromkeys([*(host or []), "localhost", "127.0.0.1"])
        make_server(home, hosts, days)
        typer.echo(f"{home}/server.pem is the server's certificate, for {', '.join(hosts)}")
    elif host:
        hosts = dict.fromkeys([*host, "localhost", "127.0.0.1"])
        renew_server(home, hosts, days)
        typer.echo(f"{home}/server.pem is new, for {', '.join(hosts)}; owners' folders stay as they are")
    for name in names:
        typer.echo(f"{make_owner(home, name)} is for {name} alone: hand it over, then delete it here")


@app.command()
def serve(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="EXPERIMENT|RUN [FIELD=VALUE]...",
            help="A YAML file and changes such as local.lr=0.05; or the directory of a run to continue.",
        ),
    ],
    home: Home = Path(),
    host: Annotated[str, typer.Option(help="Where the server listens.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535, help="Where the server listens.")] = 8000,
    superlink: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Use a running SuperLink.")
    ] = None,
    secret: Annotated[
        Path | None, typer.Option(help="The running SuperLink's --superexec-auth-secret-file.")
    ] = None,
    owners: Annotated[
        int | None, typer.Option(min=1, help="Owners to wait for; by default all that have a key.")
    ] = None,
    wait: Annotated[float, typer.Option(min=0, help="Seconds to wait for owners.")] = 600.0,
    rounds: Annotated[int | None, typer.Option(min=1, help="Number of rounds.")] = None,
    plain: Plain = False,
    trust: Trusted = False,
    out: Out = Path("runs"),
    track: Track = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Train an experiment with the owners who join, or continue an interrupted run."""
    with _needs_flower():
        from mnemos.deployment.conduct import Wait, check_run, conduct, go_on
        from mnemos.deployment.enrol import check
        from mnemos.deployment.grid import GridLink
        from mnemos.deployment.keys import public_keys
        from mnemos.deployment.observed import RosterObserver
        from mnemos.deployment.roster import Roster
        from mnemos.deployment.serve import ServerSettings, announce, connected, expected
    check_folder(home, "home")
    check_folder(out, "out")
    begun = Run.at(words[0]) if Path(words[0]).is_dir() else None
    if begun is None:
        experiment = experiment_from(words, {"rounds": rounds})
        check(experiment)
    else:
        check_run(begun)
        asking(lambda said: Run.at(words[0]).load(trust=said), trust)
        if len(words) > 1:
            raise ConfigError(f"found {words[1]}; an interrupted run continues unchanged")
    settings = ServerSettings(home, host, port, plain, superlink, secret)
    waiting = Wait(expected(settings, owners), wait)
    options = _options(home, host, port, owners, plain)
    with journal(home / "server.log") as say:
        announce(home, say.warn)
        if plain:
            say.warn(_PLAIN)
        roster = Roster(home, say, None if plain else public_keys(home))
        settings = replace(settings, heard=roster.heard)
        lines = not errors.is_terminal
        shown = observe(watch(quiet or lines), track or [])
        observer = RosterObserver(shown, roster, say, loud=lines and not quiet)
        with ending(observer, as_json, options), connected(settings) as (grid, known):
            link = GridLink(grid, known)
            link.watcher = roster
            where = superlink or f"{host}:{port}"
            roster.server(state="waiting", address=where)
            names = f": {', '.join(sorted(known.values()))}" if known else ""
            say(f"waiting for {plural(waiting.owners, 'owner')} at {where}{names}")
            if begun is None:
                begun = conduct(experiment, link, out, waiting, observer, say)
            else:
                begun = go_on(begun, link, waiting, observer, say, rounds)
    report_run(begun, as_json, options)


def _options(home: Path, host: str, port: int, owners: int | None, plain: bool) -> list[str]:
    """The options with which a server has to be started again."""
    words = ["--home", str(home), "--host", host, "--port", str(port)]
    words += [] if owners is None else ["--owners", str(owners)]
    return [*words, "--plain"] if plain else words


@app.command()
def join(
    server: Annotated[str, typer.Option(metavar="HOST:PORT", help="The federation's server.")],
    data: Annotated[str, typer.Option(help="Your data: an npz file or a folder of images. It stays here.")],
    keys: Annotated[
        Path | None,
        typer.Option(help="The folder that you got from the server's operator: a key, and ca.pem."),
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="Your name, if there are no keys; by default the data's.")
    ] = None,
    folder: Annotated[
        Path | None,
        typer.Option(help="Where your client keeps its state; by default mnemos-client/NAME."),
    ] = None,
    plugins: Annotated[
        bool, typer.Option("--allow-plugins", help="Allow the server to name your own code by import path.")
    ] = False,
    counts: Annotated[
        bool,
        typer.Option("--share-counts", help="Tell the server your number of training samples of each class."),
    ] = False,
    device: Annotated[
        str, typer.Option(metavar="NAME", help="Where your client trains: auto, cpu, cuda, cuda:1, xpu, mps.")
    ] = AUTO,
    wait: Annotated[float, typer.Option(min=0, help="Seconds to wait for the server.")] = 600.0,
    plain: Plain = False,
) -> None:
    """Take part in a federation with your data, until Ctrl-C."""
    with _needs_flower():
        from mnemos.deployment.diary import Diary
        from mnemos.deployment.holder import Holder
        from mnemos.deployment.join import check
        from mnemos.deployment.join import join as take_part
    if plain and keys is not None:
        raise ConfigError("found keys and --plain; a plain connection has none", "keys")
    if not plain and keys is None:
        raise ConfigError("they are missing; for a trial on one machine, use --plain", "keys")
    (own,) = find_devices(device, "device")
    called = name or (keys.name if keys else Path(data).stem)
    folder = folder or Path("mnemos-client") / called
    check_folder(folder, "folder")
    check(data, keys)
    with journal(folder / "client.log") as say:
        if plain:
            say.warn(_PLAIN)
        diary = Diary(folder, say)
        holder = Holder(data, folder / "memory", called, plugins, own, diary)
        holder.share_counts = counts
        try:
            take_part(server, holder, folder, keys, wait, say)
        except KeyboardInterrupt:
            words = ["--server", server, "--data", data, "--folder", str(folder), "--device", device]
            words += ["--plain", "--name", called] if keys is None else ["--keys", str(keys)]
            words += ["--allow-plugins"] if plugins else []
            words += ["--share-counts"] if counts else []
            again = shlex.join(["mnemos", "federate", "join", *words])
            say(f"{called} has left; to join again: {again}")
            raise SystemExit(130) from None


@app.command()
def status(
    folder: Annotated[
        Path,
        typer.Argument(help="The server's folder (--home), or the folder of an owner's client (--folder)."),
    ] = Path(),
    check: Annotated[
        bool,
        typer.Option(
            "--check", help="For supervisors: print nothing but a problem; exit with 1 if there is one."
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Show how a federation is doing, on the server's machine or on an owner's.

    It only reads, and can be called at any time. With --check, the exit code is 0 if the process is running,
    and waiting, training or connected.
    """
    side = read_side(folder)
    if as_json:
        typer.echo(side_facts(side))
    elif not check:
        print_side(side)
    if check and not side.well:
        if not as_json:
            typer.echo(f"{folder}: {side.state}", err=True)
        raise SystemExit(1)


@contextmanager
def _needs_flower() -> Iterator[None]:
    """Turn the ImportError of a package that Flower brings into a sentence that says what to install."""
    try:
        yield
    except ImportError as error:
        if (error.name or "").partition(".")[0] not in {"flwr", "cryptography", "httpx"}:
            raise
        raise missing("flwr", "flower", error) from None
