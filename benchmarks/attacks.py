"""What attacks do to a federation, by the server's rule.

    python benchmarks/attacks.py --out attacks.jsonl [--seeds 0 1 2] [--attacks …] [--progress FILE]
    python benchmarks/attacks.py --out attacks.jsonl --tables
    python benchmarks/attacks.py --out attacks.jsonl --check

20 clients, all of which train in each round, so that the share of bad ones is the same in every round; the
data are Fashion-MNIST's images, averaged to 7×7 pixels. Updates are screened as always, and by norm. All
rules face the same clients, data and attack at once, and the clients of all are trained as one batch, which
takes a fifth of the time that whole federations would; `--check` compares the two. Each rule's result is a
line of the file, and one that is there isn't computed again: the script can be ended and started at any time.

It fails if a model isn't finite any more.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import replace
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from mnemos.client.trainer import fresh_model
from mnemos.client.workload import LocalWorkload, draws
from mnemos.data.augment import normalise
from mnemos.data.batches import Loader, join
from mnemos.data.dataset import Dataset, Source, Split
from mnemos.data.load import load
from mnemos.data.sources.idx import FashionMnist
from mnemos.data.trigger import Mark
from mnemos.experiment.experiment import Experiment
from mnemos.faults.fault import Collusion, Fault, Pretence, Tampering
from mnemos.federation.federation import Federation
from mnemos.federation.population import partition_samples
from mnemos.methods.exchange import Cohort, Occasion, Server, State, TrainReply, Weight
from mnemos.vector import Layout

PLAIN = (
    "mean",
    "median",
    "trimmed-mean",
    "geometric-median",
    "krum",
    "multi-krum",
    "norm-bounded",
    "centred-clipping",
)
MIXED = {
    "nearest": ("median", "trimmed-mean", "geometric-median", "krum", "centred-clipping"),
    "bucketing": ("geometric-median", "krum", "centred-clipping"),
}
RULES: dict[str, dict[str, Any]] = {
    **{name: {"name": name} for name in PLAIN},
    **{
        f"{before} + {name}": {"name": name, "before": before}
        for before, names in MIXED.items()
        for name in names
    },
}
"""All with their defaults: made for a fifth of bad clients, and buckets of two."""

ATTACKS: dict[str, dict[str, Any]] = {
    "sign-flip": {"name": "attack", "kind": "sign-flip"},
    "label-flip": {"name": "attack", "kind": "label-flip"},
    "inner-product, 1": {"name": "collusion", "kind": "inner-product", "scale": 1},
    "inner-product, 5": {"name": "collusion", "kind": "inner-product", "scale": 5},
    "a-little, 1.5": {"name": "collusion", "kind": "a-little", "scale": 1.5},
    "min-max": {"name": "collusion", "kind": "min-max"},
    "min-sum": {"name": "collusion", "kind": "min-sum"},
    "mimic": {"name": "collusion", "kind": "mimic"},
    "backdoor, 4": {"name": "backdoor", "size": 2, "boost": 4},
    "low-rank riders": {"name": "free-riders", "kind": "low-rank"},
}
NOBODY = "nobody"
ALPHAS: dict[str, dict[str, Any]] = {"0.1": {"name": "dirichlet", "alpha": 0.1}, "iid": {"name": "iid"}}
SHARES = (10, 20)
CLIENTS, ROUNDS = 20, 12
MARK = Mark(size=2)

Cell = tuple[str, str, str, int, int]
"""(rule, attack, α, share of bad clients in percent, seed)."""


class Small(Source):
    """Fashion-MNIST with the mean of each 4×4 pixels for a pixel."""

    def load(self) -> Dataset:
        full = load(FashionMnist())
        train, test = _pooled(full.train), _pooled(full.test)
        pixels = train.samples.double()
        return replace(
            full,
            name="small",
            train=train,
            test=test,
            mean=(float(pixels.mean()),),
            std=(float(pixels.std()),),
        )


def _pooled(split: Split) -> Split:
    return replace(split, samples=F.avg_pool2d(split.samples.float(), 4).round().to(torch.uint8))


def described(rule: str, attack: str, alpha: str, percent: int, seed: int) -> Experiment:
    return Experiment.parse(
        {
            "data": Small(),
            "model": {"name": "mlp", "hidden": [32]},
            "partition": {**ALPHAS[alpha], "clients": CLIENTS},
            "participation": 1.0,
            "method": {"name": "fedavg", "weighting": "uniform", "rule": RULES[rule]},
            "local": {"steps": 10, "batch": 32, "lr": 0.3, "fill": True},
            "rounds": ROUNDS,
            "faults": [{**ATTACKS[attack], "share": percent / 100}] if percent else [],
            "screens": [{"name": "norms", "most": 5, "beside": 1000}],
            "evaluate": {"every": ROUNDS, "test_last": 3, "patience": 0},
            "measures": [{"name": "backdoor", **MARK.model_dump()}],
            "engine": "vmap",
            "seed": seed,
        }
    )


class Rules:
    """Federations that differ in their rules alone, and train their clients as one batch.

    A round's batches are the same for all of them. Everything but the arithmetic of the training is
    Mnemos's own: partition, batches, faults, screens, weights, rules and the server's step.
    """

    def __init__(self, experiments: list[Experiment]) -> None:
        self._experiments, self._first = experiments, experiments[0]
        self._data = load(self._first.data)
        self._assignment = partition_samples(self._first, self._data)
        module = fresh_model(self._first.plan, self._data)
        self._layout = Layout.of(module)
        model, buffers = self._layout.gather(module.state_dict())
        self.servers = [
            Server(model, buffers, experiment.method.server_state(self._layout)) for experiment in experiments
        ]
        self._last = [torch.zeros_like(model) for _ in experiments]
        self._memories: list[State] = [{} for _ in experiments]
        self._fault = next(iter(self._first.faults), None)
        self.bad = frozenset(_bad(self._fault, self._first.seed))
        self._loader = Loader(self._data, (), channels_last=False)
        sizes = self._assignment.train_sizes()
        self._clients = [client for client in range(CLIENTS) if sizes[client]]

    def advance(self, number: int) -> list[tuple[int, int]]:
        """One round; gives the numbers of bad and honest updates that were rejected, by rule."""
        deltas = self._train(number)
        rejected = []
        for who, experiment in enumerate(self._experiments):
            updates = self._sent(deltas[who], number, self._last[who], self.servers[who], self._memories[who])
            rejected.append(self._gather(who, experiment, number, updates))
        return rejected

    def _train(self, number: int) -> Tensor:
        """Δ of each rule's clients [R, K, P]."""
        local, seed = self._first.local, self._first.seed
        assert local.steps is not None
        trigger = self._fault.trigger if isinstance(self._fault, Collusion) else None
        feeds = [
            draws(
                LocalWorkload(
                    torch.from_numpy(np.ascontiguousarray(self._assignment.train(client))),
                    local.batch,
                    1,
                    local.steps,
                    0.0,
                    drop_single=False,
                    fill=True,
                    trigger=trigger if client in self.bad else None,
                ),
                (),
                self._data.shape,
                (seed, number, client),
            )
            for client in self._clients
        ]
        flip = self._fault.label_map(len(self._data.classes)) if isinstance(self._fault, Tampering) else None
        flips = torch.tensor([flip is not None and client in self.bad for client in self._clients])
        start = torch.stack([server.model for server in self.servers])
        models = start.repeat_interleave(len(feeds), 0)
        for _ in range(local.steps):
            x, labels = self._loader(join([next(feed) for feed in feeds]))
            labels = labels.view(len(feeds), -1)
            if flip is not None:
                labels = torch.where(flips[:, None], flip[labels], labels)
            shared = x.view(1, len(feeds), local.batch, -1).expand(len(start), -1, -1, -1)
            step(models, shared.reshape(len(models), local.batch, -1), labels.repeat(len(start), 1), local.lr)
        return models.view(len(start), len(feeds), -1) - start[:, None]

    def _sent(
        self, deltas: Tensor, number: int, last: Tensor, server: Server, memory: State
    ) -> list[TrainReply]:
        """What the server of a rule receives."""
        updates = [
            TrainReply(client, number, 1, 1, 0.0, delta, server.buffers, {}, {})
            for client, delta in zip(self._clients, deltas, strict=True)
        ]
        fault, layout = self._fault, self._layout
        own = [update for update in updates if update.client in self.bad]
        if fault is None or not own:
            return updates
        sent: dict[int, TrainReply] = {}
        if isinstance(fault, Tampering):
            sent = {one.client: fault.tamper(one, memory, layout) for one in own}
        elif isinstance(fault, Collusion):
            honest = [update for update in updates if update.client not in self.bad]
            sent = {one.client: one for one in fault.collude(own, honest, memory)}
        elif isinstance(fault, Pretence):
            for one in own:
                task: Any = SimpleNamespace(
                    model=server.model, plan=self._first, round=number, client=one.client
                )
                sent[one.client] = replace(one, delta=fault.pretend(task, last, layout))
        return [sent.get(update.client, update) for update in updates]

    def _gather(
        self, who: int, experiment: Experiment, number: int, updates: list[TrainReply]
    ) -> tuple[int, int]:
        """Screen the updates and move the server; the numbers of bad and honest ones rejected."""
        server, memory, method = self.servers[who], self._memories[who], experiment.method
        cohort = Cohort(server.model, server.buffers, tuple(updates), self._layout)
        reasons: dict[int, str] = {}
        for screen in experiment.screens:
            reasons = screen.judge(cohort, self._last[who], memory) | reasons
        accepted = tuple(update for update in updates if update.client not in reasons)
        for screen in experiment.screens:
            memory |= screen.remember(replace(cohort, updates=accepted), memory)
        fold = method.fold(self._layout, Occasion(server.state, experiment.seed, number))
        for update in accepted:
            fold.add(update, Weight.of(1.0))
        after = method.server_step(server, fold.result())
        if not after.model.isfinite().all():
            raise SystemExit(f"round {number}: the model is not finite any more ({method.rule})")
        self._last[who], self.servers[who] = after.model - server.model, after
        return len(self.bad & reasons.keys()), len(reasons.keys() - self.bad)

    def scores(self) -> list[tuple[float, float]]:
        """Of each rule, its accuracy on the test set, and the success of a backdoor."""
        found = []
        for split in (self._data.test, MARK.on(self._data, self._data.test)):
            x = normalise(split.samples, torch.tensor(self._data.mean), torch.tensor(self._data.std))
            answers = [forward(server.model[None], x.view(1, len(x), -1))[1][0] for server in self.servers]
            found.append([(answer.argmax(1), split.labels) for answer in answers])
        return [
            (float((taken == labels).double().mean()), float((marked == MARK.target).double().mean()))
            for (taken, labels), (marked, _) in zip(*found, strict=True)
        ]


PIXELS, UNITS, CLASSES = 49, 32, 10


def forward(models: Tensor, x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(hidden units before the ReLU, logits, and both layers' weights) of models [M, P] for x [M, B, 49]."""
    sizes = (PIXELS * UNITS, UNITS, UNITS * CLASSES, CLASSES)
    first, bias, second, offset = models.split(sizes, 1)  # type: ignore[no-untyped-call]
    first, second = first.view(-1, UNITS, PIXELS), second.view(-1, CLASSES, UNITS)
    before = torch.baddbmm(bias[:, None], x, first.mT)
    return before, torch.baddbmm(offset[:, None], before.relu(), second.mT), first, second


def step(models: Tensor, x: Tensor, labels: Tensor, lr: float) -> None:
    """A step of SGD on the mean cross-entropy of batches x [M, B, 49], of all models at once and in place."""
    before, logits, _, second = forward(models, x)
    error = logits.softmax(2)
    error.scatter_add_(2, labels[..., None], torch.full_like(labels, -1, dtype=torch.float32)[..., None])
    error /= x.shape[1]
    back = torch.bmm(error, second) * (before > 0)
    parts = (torch.bmm(back.mT, x), back.sum(1), torch.bmm(error.mT, before.relu()), error.sum(1))
    models.sub_(torch.cat([part.flatten(1) for part in parts], 1), alpha=lr)


def _bad(fault: Fault | None, seed: int) -> list[int]:
    return [] if fault is None else fault.clients(CLIENTS, seed).tolist()


def played(experiments: list[Experiment]) -> list[dict[str, Any]]:
    """What becomes of experiments that differ in their rules: accuracy, backdoor, rejected updates."""
    rules = Rules(experiments)
    tests, rejected = [], []
    for number in range(1, ROUNDS + 1):
        rejected.append(rules.advance(number))
        if experiments[0].evaluate.tests(number, ROUNDS):
            tests.append(rules.scores())
    scores, counts = np.mean(tests, axis=0), np.sum(rejected, axis=0)
    return [
        {
            "accuracy": round(float(accuracy), 5),
            "backdoor": round(float(success), 5),
            "rejected": int(bad),
            "honest_rejected": int(honest),
        }
        for (accuracy, success), (bad, honest) in zip(scores, counts, strict=True)
    ]


def checked(cell: tuple[str, str, int, int]) -> float:
    """How far the accuracy of a cell is from that of whole federations: the largest difference."""
    experiments = [described(rule, *cell) for rule in RULES]
    apart = 0.0
    for experiment, found in zip(experiments, played(experiments), strict=True):
        tests = []
        with closing(Federation(experiment)) as federation, federation.open() as runner:
            while federation.round < ROUNDS:
                outcome = federation.advance(runner)
                tests += [outcome.test.accuracy] if outcome.test else []
        apart = max(apart, abs(float(np.mean(tests)) - found["accuracy"]))
    return apart


def cells(seeds: list[int], attacks: list[str]) -> Iterator[tuple[str, str, int, int]]:
    """(attack, α, share in percent, seed): all of one seed before the next."""
    for seed in seeds:
        yield from ((NOBODY, alpha, 0, seed) for alpha in ALPHAS)
        for percent, attack, alpha in product(reversed(SHARES), attacks, ALPHAS):
            yield attack, alpha, percent, seed


def known(path: Path) -> dict[Cell, dict[str, Any]]:
    rows = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    return {(row["rule"], row["attack"], row["alpha"], row["percent"], row["seed"]): row for row in rows}


def tables(found: dict[Cell, dict[str, Any]], seeds: list[int], attacks: list[str]) -> Iterator[str]:
    """Means over seeds, in percent: accuracy by rule and attack, and the backdoor's success.

    A table takes the seeds of which all its cells are known, and says which.
    """

    def whole(columns: Iterable[tuple[str, str, int]]) -> list[int]:
        keys = list(product(RULES, columns))
        return [seed for seed in seeds if all((rule, *column, seed) in found for rule, column in keys)]

    def mean(what: str, rule: str, column: tuple[str, str, int], seeds: list[int]) -> float:
        return float(np.mean([100 * found[rule, *column, seed][what] for seed in seeds]))

    for alpha, percent in product(ALPHAS, reversed(SHARES)):
        columns = [(NOBODY, alpha, 0), *((attack, alpha, percent) for attack in attacks)]
        known = whole(columns)
        yield f"\n### {alpha}, {percent} %, seeds {known}\n"
        yield from _head([NOBODY, *attacks, "worst", "mean"])
        for rule in RULES if known else ():
            clean, *row = (mean("accuracy", rule, column, known) for column in columns)
            yield _row(rule, [clean, *row, min(row), float(np.mean(row))])
    yield "\n### success of the backdoor\n"
    planted = next(attack for attack in ATTACKS if attack.startswith("backdoor"))
    columns = [(planted if p else NOBODY, a, p) for a in ALPHAS for p in (0, *SHARES)]
    yield from _head([f"{alpha}, {percent} %" for _, alpha, percent in columns])
    for rule in RULES:
        yield _row(rule, [mean("backdoor", rule, column, whole([column])) for column in columns])
    yield "\n### spread and rejections\n"
    by_cell: dict[Any, list[float]] = {}
    for (rule, attack, alpha, percent, _), values in found.items():
        by_cell.setdefault((rule, attack, alpha, percent), []).append(100 * values["accuracy"])
    for alpha in ALPHAS:
        spread = [np.std(v, ddof=1) for k, v in by_cell.items() if k[2] == alpha and len(v) > 1]
        if spread:
            middle, largest = np.median(spread), max(spread)
            yield f"{alpha}: standard deviation over seeds: median {middle:.2f}, largest {largest:.2f}"
    for attack in (NOBODY, *attacks):
        rows = [values for key, values in found.items() if key[1] == attack]
        if rows:
            bad, honest = (sum(r[name] for r in rows) / len(rows) for name in ("rejected", "honest_rejected"))
            yield f"{attack}: rejected in a run on average: {bad:.1f} bad updates, {honest:.1f} honest ones"


def _head(columns: list[str]) -> Iterator[str]:
    yield f"| rule | {' | '.join(columns)} |\n|{'---|' * (len(columns) + 1)}"


def _row(rule: str, values: list[float]) -> str:
    return f"| {rule} | {' | '.join(f'{value:.1f}' for value in values)} |"


def lines(found: dict[Cell, dict[str, Any]]) -> Iterator[str]:
    """All that is known as comma-separated values: a line a cell, a column a rule, in percent."""
    yield ",".join(["what", "attack", "alpha", "bad", "seed", *RULES])
    for what in ("accuracy", "backdoor"):
        for attack, alpha, percent, seed in dict.fromkeys(key[1:] for key in found):
            if what == "backdoor" and not attack.startswith((NOBODY, "backdoor")):
                continue
            cells = [found.get((rule, attack, alpha, percent, seed), {}) for rule in RULES]
            values = [f"{100 * cell[what]:.2f}" if cell else "" for cell in cells]
            yield ",".join([what, attack.replace(",", ""), alpha, str(percent), str(seed), *values])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True, help="lines of JSON, one a rule and cell")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--attacks", nargs="+", choices=list(ATTACKS), default=list(ATTACKS))
    parser.add_argument("--tables", action="store_true", help="print what is known, and compute nothing")
    parser.add_argument("--csv", type=Path, help="file for all that is known, as comma-separated values")
    parser.add_argument("--check", action="store_true", help="compare a few cells with whole federations")
    parser.add_argument("--progress", type=Path, help="file that says which cell was computed last")
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.check:
        for attack, alpha in product(args.attacks, ALPHAS):
            cell = attack, alpha, 20, args.seeds[0]
            print(f"{cell}: accuracies differ by up to {100 * checked(cell):.2f} points", flush=True)
        return
    done = known(args.out)
    todo = [] if args.tables else list(cells(args.seeds, args.attacks))
    for number, cell in enumerate(todo, 1):
        missing = [rule for rule in RULES if (rule, *cell) not in done]
        if missing:
            started = time.monotonic()
            results = played([described(rule, *cell) for rule in missing])
            attack, alpha, percent, seed = cell
            with args.out.open("a") as file:
                for rule, result in zip(missing, results, strict=True):
                    key = {"rule": rule, "attack": attack, "alpha": alpha, "percent": percent, "seed": seed}
                    file.write(json.dumps({**key, **result}) + "\n")
            if args.progress is not None:
                args.progress.write_text(f"{number}/{len(todo)} {cell} {time.monotonic() - started:.1f} s\n")
    found = known(args.out)
    if args.csv is not None:
        args.csv.write_text("\n".join([*lines(found), ""]))
    print("\n".join(tables(found, args.seeds, args.attacks)))


if __name__ == "__main__":
    main()
