"""`mnemos federate`: train an experiment with data owners on other machines, over Flower."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from mnemos.cli.options import Json, Out, Quiet, Track, check_folder, experiment_from
from mnemos.cli.output import ending, report_run, watch
from mnemos.cli.trusting import Trusted, asking
from mnemos.common.devices import AUTO, find_devices
from mnemos.common.extras import missing
from mnemos.errors import ConfigError
from mnemos.runs.run import Run
from mnemos.track.observe import observe

app = typer.Typer(
    help="Train where the data is: owners join over Flower, and what they hold stays with them.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
)

Home = Annotated[Path, typer.Option(help="Folder of the federation: keys, and what the SuperLink remembers.")]
Plain = Annotated[
    bool,
    typer.Option("--plain", help="Without TLS and keys: for a trial on one machine, never over a network."),
]


@app.command()
def init(folder: Annotated[Path, typer.Argument(help="A folder that is new or empty.")]) -> None:
    """Write a federation's folder: Flower's app, an experiment to begin with, and a guide."""
    from mnemos.deployment.init import write_federation

    check_folder(folder, "folder")
    write_federation(folder)
    typer.echo(f"{folder}/README.md says how to go on")


@app.command()
def keys(
    home: Annotated[Path, typer.Argument(help="Folder of the federation.")],
    owner: Annotated[list[str] | None, typer.Option(help="An owner's name; once for each.")] = None,
    host: Annotated[
        list[str] | None, typer.Option(help="A name or address that the server is reached by; once for each.")
    ] = None,
    days: Annotated[int, typer.Option(min=1, help="How long the server's certificate is valid.")] = 365,
) -> None:
    """Make keys: a certificate for the server, if there is none yet, and a key pair for each owner.

    With --host there is a new certificate for the server: other hosts, or another --days.
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
                f"{home / OWNERS / name}.pub is there already; remove it for a new key", "owner"
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
            help="A YAML file and changes such as local.lr=0.05; or the directory of a run to go on with.",
        ),
    ],
    home: Home = Path(),
    host: Annotated[str, typer.Option(help="Where the server listens.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535, help="Where the server listens.")] = 8000,
    superlink: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Use a SuperLink that is running already.")
    ] = None,
    secret: Annotated[
        Path | None, typer.Option(help="The running SuperLink's --superexec-auth-secret-file.")
    ] = None,
    owners: Annotated[
        int | None, typer.Option(min=1, help="Owners to wait for; all that have a key, if not given.")
    ] = None,
    wait: Annotated[float, typer.Option(min=0, help="Seconds that owners have to come.")] = 600.0,
    rounds: Annotated[int | None, typer.Option(min=1, help="Number of rounds.")] = None,
    plain: Plain = False,
    trust: Trusted = False,
    out: Out = Path("runs"),
    track: Track = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Train an experiment with the owners who join, or go on with a run that was broken off."""
    with _needs_flower():
        from mnemos.deployment.conduct import Wait, check_run, conduct, go_on
        from mnemos.deployment.enrol import check
        from mnemos.deployment.grid import GridLink
        from mnemos.deployment.serve import ServerSettings, connected, expected
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
            raise ConfigError(f"found {words[1]}; a run that was broken off goes on as it is")
    settings = ServerSettings(home, host, port, plain, superlink, secret)
    waiting = Wait(expected(settings, owners), wait)
    if plain:
        _say("warning: the connection is plain: everybody on the way can read and change what is sent")
    observer = observe(watch(quiet), track or [])
    with ending(observer, as_json), connected(settings) as (grid, known):
        link = GridLink(grid, known)
        names = f": {', '.join(sorted(known.values()))}" if known else ""
        _say(f"waiting for {waiting.owners} owners at {superlink or f'{host}:{port}'}{names}")
        if begun is None:
            begun = conduct(experiment, link, out, waiting, observer, _say)
        else:
            begun = go_on(begun, link, waiting, observer, _say, rounds)
    report_run(begun, as_json)


@app.command()
def join(
    server: Annotated[str, typer.Option(metavar="HOST:PORT", help="The federation's server.")],
    data: Annotated[str, typer.Option(help="Your data: an npz file or a folder of images. It stays here.")],
    keys: Annotated[
        Path | None, typer.Option(help="The folder that the server's side has given you: a key, and ca.pem.")
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="Your name, where there are no keys; the data's, if not given.")
    ] = None,
    folder: Annotated[
        Path | None,
        typer.Option(
            help="Where your client remembers what the method wants it to; mnemos-client/NAME, if not given."
        ),
    ] = None,
    plugins: Annotated[
        bool, typer.Option("--allow-plugins", help="Let the server name parts of your own by import path.")
    ] = False,
    device: Annotated[
        str, typer.Option(metavar="NAME", help="Where your client trains: auto, cpu, cuda, cuda:1, xpu, mps.")
    ] = AUTO,
    wait: Annotated[float, typer.Option(min=0, help="Seconds that the server has to come up.")] = 600.0,
    plain: Plain = False,
) -> None:
    """Take part in a federation with your data, until Ctrl-C."""
    with _needs_flower():
        from mnemos.deployment.holder import Holder
        from mnemos.deployment.join import join as take_part
    if plain and keys is not None:
        raise ConfigError("found some, and --plain; a plain connection has none", "keys")
    if not plain and keys is None:
        raise ConfigError("they are missing; a trial on one machine can do without, by --plain", "keys")
    (own,) = find_devices(device, "device")
    if plain:
        _say("warning: the connection is plain: everybody on the way can read and change what is sent")
    called = name or (keys.name if keys else Path(data).stem)
    folder = folder or Path("mnemos-client") / called
    check_folder(folder, "folder")
    take_part(server, Holder(data, folder / "memory", called, plugins, own), folder, keys, wait, _say)


def _say(line: str) -> None:
    typer.echo(line, err=True)


@contextmanager
def _needs_flower() -> Iterator[None]:
    """Turn the ImportError of a package that Flower brings into a sentence that says what to install."""
    try:
        yield
    except ImportError as error:
        if (error.name or "").partition(".")[0] not in {"flwr", "cryptography", "httpx"}:
            raise
        raise missing("flwr", "flower", error) from None
