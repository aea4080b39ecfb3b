"""The link to owners over Flower's grid: questions and answers are Flower's messages."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping

import httpx
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.serverapp import Grid
from flwr.supercore.inflatable.inflatable_utils import ObjectPullError, ObjectPushError
from flwr.superlink.grid import HttpGrid

from mnemos.common.plain import line
from mnemos.deployment.enrol import read_answer
from mnemos.deployment.holder import REFUSED, WHY, Question
from mnemos.deployment.node_answers import NodeAnswers, TooLargeError
from mnemos.deployment.watcher import Watcher
from mnemos.engines.engine import Lost
from mnemos.engines.flower import Kind
from mnemos.errors import DataError

RECORD, RUN, BODY, REFUSAL = "mnemos", "run", "body", "refusal"
ROUNDS, ENDED = "rounds", "ended"
"""The name of a message's record, and its fields. The content is in further records, a part in each."""

_PART = 4_000_000
"""The most bytes in a part. Flower gives up a message if a part takes more than three minutes."""
_TIMES, _ROOM = 8, 16_000_000
"""An answer may have this many times the bytes of its question, plus this many bytes."""
_REASONS = {2: "client failed", 5: "not connected", 8: "client died"}
"""Reasons for Flower's error codes, of those that are known to happen."""
_IN_TRANSIT, _TRIES = {3, 4}, 3
"""Error codes of messages that Flower has lost, and how often they are sent; clients repeat their answer."""
_SHORTEST = 0.05
"""Seconds between looks for answers while answers come."""
_LONGEST = 120
"""The most characters of an owner's name."""
_WHO = 60.0
"""Seconds that a node has to answer with its owner's name."""


_UNREADABLE = "unreadable"


def packed(fields: Mapping[str, str], body: bytes) -> RecordDict:
    """The content of a message with some fields and a body, which is split into parts."""
    starts = range(0, max(len(body), 1), _PART)
    parts = {
        f"{RECORD}.{index}": ConfigRecord({BODY: body[start : start + _PART]})
        for index, start in enumerate(starts)
    }
    return RecordDict({RECORD: ConfigRecord(dict(fields)), **parts})


def body_of(content: RecordDict) -> bytes | None:
    """The body of a message; None if it can't be read."""
    records = content.config_records
    parts: list[object] = []
    while (record := records.get(f"{RECORD}.{len(parts)}")) is not None:
        parts.append(record.get(BODY))
    texts = [part for part in parts if isinstance(part, bytes)]
    return b"".join(texts) if texts and len(texts) == len(parts) else None


class Refusal(str):
    """The reason for which an owner refuses to answer: one of `WHY`, because it is written to the metrics."""


class _InTransit(str):
    """The reason for which Flower has lost a message."""


class GridLink:
    """The link to owners, by the names of their keys or, without keys, the names that they say."""

    def __init__(self, grid: Grid, known: Mapping[int, str] | None = None) -> None:
        """`known` are owners' names by node, if owners have keys; then other nodes are ignored."""
        self._grid, self._known = grid, known
        self._names: dict[int, str] = dict(known or {})
        self._answers = NodeAnswers(grid) if isinstance(grid, HttpGrid) else None
        self._left: dict[str, float] = {}
        """Messages whose answers aren't awaited any more, and until when answers may come."""
        self.watcher = Watcher()
        """What is told about owners that come, go and answer."""
        self.rounds = 0
        """The run's number of rounds, which owners are told."""
        self.run = ""
        """The run's name, under which owners keep client states."""
        self.clients: tuple[str, ...] = ()
        """The names of the run's clients, in the order of their numbers."""

    def present(self) -> dict[str, int]:
        """The nodes of the owners that are connected, by name."""
        nodes = set(self._grid.get_node_ids())
        if self._known is None:
            strangers = nodes - self._names.keys()
            for node, answer in self._exchange("query", strangers, lambda _: _WHO_ARE_YOU, _WHO):
                if isinstance(answer, bytes):
                    self._name(node, answer)
        # Of several nodes with the same name, the newest counts: a client that was restarted has a new one.
        found = {name: node for node, name in self._names.items() if node in nodes}
        self.watcher.present(found)
        return found

    def question(self, body: bytes, timeout: float, but: Container[str] = ()) -> dict[str, bytes | str]:
        """Ask all connected owners except `but` a question: returns their answers by name.

        An owner that doesn't answer has the reason as a str instead of bytes.
        """
        names = {node: name for name, node in self.present().items() if name not in but}
        answers = self._exchange("query", names, lambda _: body, timeout)
        return {names[node]: answer for node, answer in answers}

    def ask(
        self, kind: Kind, questions: Mapping[int, bytes], timeout: float
    ) -> Iterator[tuple[int, bytes | Lost]]:
        """Send questions to clients, and yield each client's answer or loss as it comes."""
        present = self.present()
        nodes = {client: present.get(self.clients[client]) for client in questions}
        clients = {node: client for client, node in nodes.items() if node is not None}
        for client, node in nodes.items():
            if node is None:
                self._heard(kind, client, "not connected")
                yield client, Lost(client, "not connected")
        for node, answer in self._exchange(kind, clients, lambda node: questions[clients[node]], timeout):
            client = clients[node]
            self._heard(kind, client, answer)
            yield client, answer if isinstance(answer, bytes) else Lost(client, answer)

    def tell_end(self, status: str, rounds: int, model: bytes, timeout: float) -> None:
        """Tell all connected owners of the run how it has ended, with its model's file or no bytes."""
        present = self.present()
        nodes = [present[name] for name in self.clients if name in present]
        fields = {ENDED: status, ROUNDS: f"{rounds}"}
        for _ in self._exchange("query", nodes, lambda _: model, timeout, fields):
            pass

    def _heard(self, kind: Kind, client: int, answer: bytes | str) -> None:
        """Tell the watcher whether a client has trained."""
        if kind == "train" and isinstance(answer, bytes):
            self.watcher.answered(self.clients[client])
        elif kind == "train":
            self.watcher.dropped(self.clients[client], str(answer))

    def _exchange(
        self,
        kind: Kind,
        nodes: Iterable[int],
        body: Callable[[int], bytes],
        timeout: float,
        fields: Mapping[str, str] | None = None,
    ) -> Iterator[tuple[int, bytes | str]]:
        """Send a message to each node, and yield its answer or, as a str, why there is none.

        `body(node)` is the message's body, `fields` are sent beside it.
        """
        self._clear()
        fields = {RUN: self.run, ROUNDS: f"{self.rounds}", **(fields or {})}
        waiting: dict[str, tuple[int, int]] = {}
        sent: Counter[int] = Counter()

        def send(node: int) -> bool:
            """Send the message to a node; returns whether that was possible."""
            asked = body(node)
            content = packed(fields, asked)
            message = Message(content, dst_node_id=node, message_type=kind, ttl=timeout)
            message_id = self._pushed(message)
            if message_id is not None:
                waiting[message_id] = node, _TIMES * len(asked) + _ROOM
                sent[node] += 1
            return message_id is not None

        for node in nodes:
            if not send(node):
                yield node, "not sent"
        end, pause, over = time.monotonic() + timeout, _SHORTEST, False
        try:
            while waiting and not over:
                over = time.monotonic() >= end  # answers that have come by then still count
                pause = min(1.5 * pause, 1.0)
                for message_id, (node, most) in list(waiting.items()):
                    answer = self._pulled(message_id, most)
                    if answer is None:
                        continue
                    del waiting[message_id]
                    pause = _SHORTEST
                    if not (isinstance(answer, _InTransit) and sent[node] < _TRIES and send(node)):
                        yield node, answer
                if waiting and not over:
                    time.sleep(pause)
            for node, _ in waiting.values():
                yield node, "timeout"
        finally:
            self._left |= dict.fromkeys(waiting, end)

    def _clear(self) -> None:
        """Delete answers that have come too late, each of which is as large as a model."""
        now = time.monotonic()
        for message_id, end in list(self._left.items()):
            if (self._answers is not None and self._answers.forget(message_id)) or now > end + _WHO:
                del self._left[message_id]

    def _pushed(self, message: Message) -> str | None:
        """Send a message; returns its id, or None if it couldn't be sent."""
        try:
            # Messages are sent one at a time, because together they may be too large for a request.
            return next(iter(self._grid.push_messages([message])), None)
        except ObjectPushError:
            return None

    def _pulled(self, message_id: str, most: int) -> bytes | str | None:
        """The answer to a message, of at most `most` bytes, or why there is none; None if it isn't there yet.

        Answers are fetched one at a time, so that one that can't be read doesn't affect the others.
        """
        try:
            if self._answers is not None:
                reply = self._answers.pull(message_id, most)
            else:
                reply = next(iter(self._grid.pull_messages([message_id])), None)
            return None if reply is None else _answer(reply)
        except httpx.HTTPError:  # an error of the SuperLink, not of a node
            raise
        except ObjectPullError:
            return _InTransit("lost on the way")
        except TooLargeError:
            return "too large"
        except Exception:  # a node may be any program, and Flower trusts what it sends
            return _UNREADABLE

    def _name(self, node: int, answer: bytes) -> None:
        """Note the owner's name that a node has answered, if it is a valid one."""
        try:
            name = read_answer("a node", answer).get("owner")
        except DataError:
            return
        if isinstance(name, str) and name and name == line(name, _LONGEST):
            self._names[node] = name


_WHO_ARE_YOU = Question().model_dump_json().encode()


def _answer(reply: Message) -> bytes | str:
    """The body of a reply or, as a str, why there is none."""
    if reply.has_error():
        code = int(reply.error.code)
        reason = _REASONS.get(code, f"Flower's error {code}")
        return _InTransit(reason) if code in _IN_TRANSIT else reason
    refusal = reply.content.config_records[RECORD].get(REFUSAL)
    if refusal is not None:
        return Refusal(refusal if refusal in WHY else REFUSED)
    answer = body_of(reply.content)
    return _UNREADABLE if answer is None else answer
