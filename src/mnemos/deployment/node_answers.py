"""Receiving nodes' answers from Flower 1.41, part by part."""

from __future__ import annotations

from dataclasses import dataclass, field

from flwr.app import Message
from flwr.proto.runtime_pb2 import PullAppMessagesRequest
from flwr.supercore.inflatable.inflatable_object import iterate_object_tree
from flwr.supercore.inflatable.inflatable_protobuf_utils import (
    make_confirm_message_received_fn_protobuf,
    make_pull_object_fn_protobuf,
)
from flwr.supercore.inflatable.inflatable_utils import ObjectUnavailableError, inflate_object_from_contents
from flwr.superlink.grid import HttpGrid


class NodeAnswers:
    """Answers to a grid's messages, fetched part by part as they arrive.

    Flower itself would wait for all parts once the first is there, for up to two hours if the sender is slow
    or gone. Other nodes' answers would time out meanwhile.
    """

    def __init__(self, grid: HttpGrid) -> None:
        self._client, self._node, self._run = grid._runtime_client, grid.node, grid.run.run_id
        self._begun: dict[str, _PartialAnswer] = {}

    def pull(self, message_id: str, most: int) -> Message | None:
        """The answer to a message; None until all of it is there.

        Raises TooLargeError if it has more than `most` bytes, and other errors if it will never be complete.
        """
        begun = self._begun.get(message_id) or self._announced(message_id)
        if begun is None:
            return None
        self._begun[message_id] = begun
        pull = make_pull_object_fn_protobuf(self._client.PullObject, self._node, self._run)
        try:
            while begun.missing:
                part = pull(begun.missing[-1])
                begun.parts[begun.missing.pop()] = part
                if sum(map(len, begun.parts.values())) > most:
                    raise TooLargeError
        except ObjectUnavailableError:
            return None
        except Exception:
            self.forget(message_id)
            raise
        self.forget(message_id)
        message = inflate_object_from_contents(begun.id, begun.parts)
        if not isinstance(message, Message):
            raise TypeError(f"found a {type(message).__name__}")
        return message

    def forget(self, message_id: str) -> bool:
        """Have the SuperLink delete the answer to a message; returns whether there was one."""
        begun = self._begun.pop(message_id, None) or self._announced(message_id)
        if begun is not None:
            confirm = make_confirm_message_received_fn_protobuf(
                self._client.ConfirmMessageReceived, self._node, self._run
            )
            confirm(begun.id)
        return begun is not None

    def _announced(self, message_id: str) -> _PartialAnswer | None:
        """The answer to a message before any part is fetched; the SuperLink announces it only once."""
        found = self._client.PullMessages(PullAppMessagesRequest(message_ids=[message_id]))
        for message, tree in zip(found.messages_list, found.message_object_trees, strict=True):
            if message.metadata.reply_to_message_id == message_id:
                missing = list(dict.fromkeys(part.object_id for part in iterate_object_tree(tree)))
                return _PartialAnswer(message.metadata.message_id, missing)
        return None


@dataclass
class _PartialAnswer:
    """An answer of which some parts may be missing."""

    id: str
    missing: list[str]
    """The ids of the missing parts; the last is fetched next."""
    parts: dict[str, bytes] = field(default_factory=dict)


class TooLargeError(Exception):
    """An answer has more bytes than its question allows."""
