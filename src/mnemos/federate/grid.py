"""Flower's grid as a way to owners: questions and answers are messages with one buffer each."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Container, Iterator, Mapping

import httpx
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.serverapp import Grid

from mnemos.engines.engine import Lost
from mnemos.engines.flower import Kind
from mnemos.errors import DataError
from mnemos.federate.enrol import read_answer
from mnemos.federate.holder import Question
from mnemos.plain import line

RECORD, RUN, BODY, ANSWER, REFUSAL = "mnemos", "run", "body", "answer", "refusal"
"""The record in a message, and its fields."""

_REASONS = {2: "client failed", 5: "not connected", 8: "client died"}
"""Of Flower's errors, the ones that are known to happen."""
_IN_TRANSIT, _TRIES = {3, 4}, 3
"""Messages that Flower has lost on the way, there or back, are sent again: clients do the same once more."""
_SHORTEST = 0.05
"""Seconds between looks for answers, as long as some come."""
_LONGEST = 120
"""Characters of a name, or of what an owner says why it has refused."""
_WHO = 60.0
"""Seconds for an answer to who somebody is."""


_UNREADABLE = "unreadable"


class Refusal(str):
    """What an owner says why it doesn't answer."""


class _InTransit(str):
    """What Flower says of a message that it has lost on the way."""


class GridLink:
    """Owners, by the names that their keys have or that they give themselves."""

    def __init__(self, grid: Grid, known: Mapping[int, str] | None = None) -> None:
        """`known`: names by node, where keys tell who is who; anybody else isn't listened to."""
        self._grid, self._known = grid, known
        self._names: dict[int, str] = dict(known or {})
        self.run = ""
        """What the run is called: owners remember by it."""
        self.clients: tuple[str, ...] = ()
        """The names of the run's clients, in their order."""

    def present(self) -> dict[str, int]:
        """Who is connected, and at which node."""
        nodes = set(self._grid.get_node_ids())
        if self._known is None:
            strangers = {node: _WHO_ARE_YOU for node in nodes if node not in self._names}
            for node, answer in self._exchange("query", strangers, _WHO):
                if isinstance(answer, bytes):
                    self._name(node, answer)
        # Of several with one name, who was heard of last: a client that was started again has a new node.
        return {name: node for node, name in self._names.items() if node in nodes}

    def question(self, body: bytes, timeout: float, but: Container[str] = ()) -> dict[str, bytes | str]:
        """What all who are connected, but for some, answer to a question; or why there is no answer."""
        names = {node: name for name, node in self.present().items() if name not in but}
        answers = self._exchange("query", dict.fromkeys(names, body), timeout)
        return {names[node]: answer for node, answer in answers}

    def ask(
        self, kind: Kind, questions: Mapping[int, bytes], timeout: float
    ) -> Iterator[tuple[int, bytes | Lost]]:
        """What clients answer, as they do."""
        present = self.present()
        nodes = {client: present.get(self.clients[client]) for client in questions}
        clients = {node: client for client, node in nodes.items() if node is not None}
        for client, node in nodes.items():
            if node is None:
                yield client, Lost(client, "not connected")
        bodies = {node: questions[client] for node, client in clients.items()}
        for node, answer in self._exchange(kind, bodies, timeout):
            client = clients[node]
            yield client, answer if isinstance(answer, bytes) else Lost(client, answer)

    def _exchange(
        self, kind: Kind, bodies: Mapping[int, bytes], timeout: float
    ) -> Iterator[tuple[int, bytes | str]]:
        """Each node's answer, or why there is none."""
        waiting: dict[str, int] = {}
        sent: Counter[int] = Counter()
        end, pause = time.monotonic() + timeout, _SHORTEST

        def send(node: int) -> bool:
            content = RecordDict({RECORD: ConfigRecord({RUN: self.run, BODY: bodies[node]})})
            message = Message(content, dst_node_id=node, message_type=kind, ttl=timeout)
            # One at a time: together they may be more than a request can hold.
            number = next(iter(self._grid.push_messages([message])), None)
            if number is not None:
                waiting[number] = node
                sent[node] += 1
            return number is not None

        for node in bodies:
            if not send(node):
                yield node, "not sent"
        while waiting and time.monotonic() < end:
            pause = min(1.5 * pause, 1.0)
            for number in list(waiting):
                answer = self._pulled(number)
                if answer is None:
                    continue
                node, pause = waiting.pop(number), _SHORTEST
                if not (isinstance(answer, _InTransit) and sent[node] < _TRIES and send(node)):
                    yield node, answer
            if waiting:
                time.sleep(pause)
        for node in waiting.values():
            yield node, "timeout"

    def _pulled(self, number: str) -> bytes | str | None:
        """The answer to a message, or why there is none; None: it isn't there yet.

        One at a time: what can't be read of one node's must not be the end of the others'.
        """
        try:
            replies = list(self._grid.pull_messages([number]))
            return _answer(replies[0]) if replies else None
        except httpx.HTTPError:  # of the link, and no node's
            raise
        except Exception:  # a node may be any program, and Flower trusts what it sends
            return _UNREADABLE

    def _name(self, node: int, answer: bytes) -> None:
        try:
            name = read_answer("a node", answer).get("owner")
        except DataError:
            return
        if isinstance(name, str) and name and name == line(name, _LONGEST):
            self._names[node] = name


_WHO_ARE_YOU = Question().model_dump_json().encode()


def _answer(reply: Message) -> bytes | str:
    if reply.has_error():
        code = int(reply.error.code)
        reason = _REASONS.get(code, f"Flower's error {code}")
        return _InTransit(reason) if code in _IN_TRANSIT else reason
    record = reply.content.config_records[RECORD]
    answer, refusal = record.get(ANSWER), record.get(REFUSAL)
    if isinstance(refusal, str):
        return Refusal(line(refusal, _LONGEST) or "refused")
    return answer if isinstance(answer, bytes) else _UNREADABLE
