"""Flower's grid as a way to owners: questions and answers are messages with one buffer each."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping

import httpx
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.serverapp import Grid
from flwr.supercore.inflatable.inflatable_utils import ObjectPullError, ObjectPushError
from flwr.superlink.grid import HttpGrid

from mnemos.engines.engine import Lost
from mnemos.engines.flower import Kind
from mnemos.errors import DataError
from mnemos.federate.enrol import read_answer
from mnemos.federate.holder import REFUSED, WHY, Question
from mnemos.federate.runtime import Answers, TooLargeError
from mnemos.plain import line

RECORD, RUN, BODY, REFUSAL = "mnemos", "run", "body", "refusal"
"""The record in a message, and fields; what is said is in records of its own, a part in each."""

_PART = 4_000_000
"""Bytes: Flower gives up a message if a part of it takes more than three minutes."""
_TIMES, _ROOM = 8, 16_000_000
"""An answer may have so many times the bytes of its question, and so many more."""
_REASONS = {2: "client failed", 5: "not connected", 8: "client died"}
"""Of Flower's errors, the ones that are known to happen."""
_IN_TRANSIT, _TRIES = {3, 4}, 3
"""Messages that Flower has lost on the way, there or back, are sent again: clients do the same once more."""
_SHORTEST = 0.05
"""Seconds between looks for answers, as long as some come."""
_LONGEST = 120
"""Characters of a name."""
_WHO = 60.0
"""Seconds for an answer to who somebody is."""


_UNREADABLE = "unreadable"


def packed(fields: Mapping[str, str], body: bytes) -> RecordDict:
    """A message's content."""
    starts = range(0, max(len(body), 1), _PART)
    parts = {
        f"{RECORD}.{number}": ConfigRecord({BODY: body[start : start + _PART]})
        for number, start in enumerate(starts)
    }
    return RecordDict({RECORD: ConfigRecord(dict(fields)), **parts})


def body_of(content: RecordDict) -> bytes | None:
    """What is said in a message; None: it can't be read."""
    records = content.config_records
    parts: list[object] = []
    while (record := records.get(f"{RECORD}.{len(parts)}")) is not None:
        parts.append(record.get(BODY))
    texts = [part for part in parts if isinstance(part, bytes)]
    return b"".join(texts) if texts and len(texts) == len(parts) else None


class Refusal(str):
    """What an owner says why it doesn't answer: one of a few reasons, as it becomes part of the record."""


class _InTransit(str):
    """What Flower says of a message that it has lost on the way."""


class GridLink:
    """Owners, by the names that their keys have or that they give themselves."""

    def __init__(self, grid: Grid, known: Mapping[int, str] | None = None) -> None:
        """`known`: names by node, where keys tell who is who; anybody else isn't listened to."""
        self._grid, self._known = grid, known
        self._names: dict[int, str] = dict(known or {})
        self._answers = Answers(grid) if isinstance(grid, HttpGrid) else None
        self._left: dict[str, float] = {}
        """Messages that nobody waits for any more, and until when they may be answered."""
        self.run = ""
        """What the run is called: owners remember by it."""
        self.clients: tuple[str, ...] = ()
        """The names of the run's clients, in their order."""

    def present(self) -> dict[str, int]:
        """Who is connected, and at which node."""
        nodes = set(self._grid.get_node_ids())
        if self._known is None:
            strangers = nodes - self._names.keys()
            for node, answer in self._exchange("query", strangers, lambda _: _WHO_ARE_YOU, _WHO):
                if isinstance(answer, bytes):
                    self._name(node, answer)
        # Of several with one name, who was heard of last: a client that was started again has a new node.
        return {name: node for node, name in self._names.items() if node in nodes}

    def question(self, body: bytes, timeout: float, but: Container[str] = ()) -> dict[str, bytes | str]:
        """What all who are connected, but for some, answer to a question; or why there is no answer."""
        names = {node: name for name, node in self.present().items() if name not in but}
        answers = self._exchange("query", names, lambda _: body, timeout)
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
        for node, answer in self._exchange(kind, clients, lambda node: questions[clients[node]], timeout):
            client = clients[node]
            yield client, answer if isinstance(answer, bytes) else Lost(client, answer)

    def _exchange(
        self, kind: Kind, nodes: Iterable[int], body: Callable[[int], bytes], timeout: float
    ) -> Iterator[tuple[int, bytes | str]]:
        """Each node's answer, or why there is none."""
        self._clear()
        waiting: dict[str, tuple[int, int]] = {}
        sent: Counter[int] = Counter()

        def send(node: int) -> bool:
            asked = body(node)
            content = packed({RUN: self.run}, asked)
            message = Message(content, dst_node_id=node, message_type=kind, ttl=timeout)
            number = self._pushed(message)
            if number is not None:
                waiting[number] = node, _TIMES * len(asked) + _ROOM
                sent[node] += 1
            return number is not None

        for node in nodes:
            if not send(node):
                yield node, "not sent"
        end, pause, over = time.monotonic() + timeout, _SHORTEST, False
        try:
            while waiting and not over:
                over = time.monotonic() >= end  # whoever has answered by then is heard
                pause = min(1.5 * pause, 1.0)
                for number, (node, most) in list(waiting.items()):
                    answer = self._pulled(number, most)
                    if answer is None:
                        continue
                    del waiting[number]
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
        """Have the link forget answers that have come too late: each is as large as a model."""
        now = time.monotonic()
        for number, end in list(self._left.items()):
            if (self._answers is not None and self._answers.forget(number)) or now > end + _WHO:
                del self._left[number]

    def _pushed(self, message: Message) -> str | None:
        """The number of a message that is on its way; None: it couldn't be sent."""
        try:
            # One at a time: together they may be more than a request can hold.
            return next(iter(self._grid.push_messages([message])), None)
        except ObjectPushError:
            return None

    def _pulled(self, number: str, most: int) -> bytes | str | None:
        """The answer to a message, of so many bytes at most, or why there is none; None: it isn't there yet.

        One at a time: what can't be read of one node's must not be the end of the others'.
        """
        try:
            if self._answers is not None:
                reply = self._answers.pull(number, most)
            else:
                reply = next(iter(self._grid.pull_messages([number])), None)
            return None if reply is None else _answer(reply)
        except httpx.HTTPError:  # of the link, and no node's
            raise
        except ObjectPullError:
            return _InTransit("lost on the way")
        except TooLargeError:
            return "too large"
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
    refusal = reply.content.config_records[RECORD].get(REFUSAL)
    if refusal is not None:
        return Refusal(refusal if refusal in WHY else REFUSED)
    answer = body_of(reply.content)
    return _UNREADABLE if answer is None else answer
