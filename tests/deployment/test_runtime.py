"""A client at Flower's own Runtime API, with a SuperLink that is made up."""

import hashlib
import threading
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
import uvicorn
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.app.message import remove_content_from_message
from flwr.cli.build import build_fab_from_disk
from flwr.clientapp import ClientApp
from flwr.common.serde import message_to_proto
from flwr.proto.message_pb2 import PullObjectResponse
from flwr.proto.node_pb2 import Node
from flwr.proto.runtime_pb2 import PullAppMessagesResponse
from flwr.supercore.fab import Fab
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_tree
from flwr.supercore.inflatable.inflatable_utils import ObjectPullError, ObjectPushError
from flwr.supercore.object_store import ObjectStoreFactory
from flwr.supercore.run import Run, RunNotRunningException
from flwr.supercore.task_identity import TaskIdentity
from flwr.supernode.main import create_app
from flwr.supernode.nodestate import NodeStateFactory
from flwr.supernode.start_client_internal import _pull_and_store_message

from mnemos.deployment import runtime
from mnemos.deployment.init import write_app
from mnemos.deployment.node_answers import NodeAnswers, TooLargeError
from mnemos.deployment.processes import free_port
from mnemos.deployment.runtime import Door, answer_forever
from support.processes import LONG, wait_for

pytestmark = [
    # Flower reads an app with what pathspec will no longer have.
    pytest.mark.filterwarnings("ignore:GitWildMatchPattern:DeprecationWarning"),
]
NODE = 7


class SuperNode:
    """What a SuperNode holds, and its Runtime API; messages come from the test instead of a SuperLink."""

    def __init__(self, fab):
        self.fab, factory = fab, ObjectStoreFactory()
        states = NodeStateFactory(objectstore_factory=factory)
        self.state, self.store = states.state(), factory.store()
        self.state.set_node_id(NODE)
        self.door = Door(f"127.0.0.1:{free_port()}", b"a secret of thirty-two bytes, yes")
        port = int(self.door.address.rpartition(":")[2])
        app = create_app(states, self.door.secret)
        self.server = uvicorn.Server(
            uvicorn.Config(app, host="127.0.0.1", port=port, log_level="error", ws="none")
        )

    def receive(self, run, text, pull_object=None):
        """As its loop does: take a message, whose parts are asked for one after the other."""
        message = Message(
            RecordDict({"all": ConfigRecord({"text": text})}), dst_node_id=NODE, message_type="query"
        )
        message.metadata.__dict__["_run_id"] = run
        message.metadata.__dict__["_message_id"] = message.object_id
        parts = get_all_nested_objects(message)
        described = Run.create_empty(run)
        described.fab_hash, described.series_id = self.fab.hash_str, run
        return _pull_and_store_message(
            state=self.state,
            object_store=self.store,
            node_config={},
            receive=lambda: (message, get_object_tree(message)),
            get_run=lambda _: described,
            get_fab=lambda *_: self.fab,
            pull_object=pull_object or (lambda _, number: parts[number].deflate()),
            confirm_message_received=lambda *_: None,
            trusted_entities=None,
        )

    def replies(self):
        return self.state.get_messages_legacy(is_reply=True)

    def unfinished(self):
        return [task for task in self.state.get_tasks() if task.status.status != "finished"]


@contextmanager
def running(node, app, say=print):
    """A node's Runtime API, and a client that answers its messages."""
    going = True
    threads = [
        threading.Thread(target=node.server.run),
        threading.Thread(target=lambda: answer_forever(node.door, app, lambda: going, say)),
    ]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        going = False
        threads[1].join(LONG)
        node.server.should_exit = True
        threads[0].join(LONG)
    assert not any(thread.is_alive() for thread in threads)


@pytest.fixture
def node(tmp_path, monkeypatch):
    for name in ("_task_id", "_run_id", "_node_id"):
        monkeypatch.setattr(TaskIdentity, name, 1)
    write_app(tmp_path)
    content = build_fab_from_disk(tmp_path)
    return SuperNode(Fab(hashlib.sha256(content).hexdigest(), content, {}))


@pytest.fixture
def answered():
    """What a client was asked."""
    return []


@pytest.fixture
def app(answered):
    app = ClientApp()

    @app.query()
    def answer(message, context):
        answered.append(message.content.config_records["all"]["text"])
        return Message(RecordDict(), reply_to=message)

    return app


def test_messages_are_answered_one_after_the_other(node, app, answered):
    with running(node, app):
        for text in ("one", "two"):
            assert node.receive(1, text) == 1
            wait_for(node.replies, "an answer")
        wait_for(lambda: not node.unfinished(), "the end of the tasks")
    assert answered == ["one", "two"]


def test_a_message_that_a_killed_server_has_sent_half_of_does_not_keep_a_client(node, app, answered):
    """The node gives such a message up once its run is over, but leaves the task to its client."""
    claimed = threading.Event()

    def never(run, number):
        wait_for(lambda: node.state.get_tasks(statuses=["running"]), "the client to begin")
        claimed.set()
        raise RunNotRunningException

    with running(node, app):
        assert node.receive(1, "half", never) is None
        assert claimed.is_set()
        assert node.receive(2, "whole") == 2
        (reply,) = wait_for(node.replies, "an answer")
        assert not reply.has_error()
        wait_for(lambda: not node.unfinished(), "the end of the tasks")
    assert answered == ["whole"]


def test_an_answer_that_its_node_does_not_take_does_not_end_the_client(node, app, answered, monkeypatch):
    """The server was killed and started again meanwhile: the node throws answers of the old run away."""
    said, push = [], runtime.push_message

    def refused(client, reply, context):
        if not said:
            raise ObjectPushError("part", 1, "session")
        push(client, reply, context)

    monkeypatch.setattr(runtime, "push_message", refused)
    with running(node, app, said.append):
        assert node.receive(1, "one") == 1
        wait_for(lambda: said, "the loss")
        assert node.receive(2, "two") == 2
        wait_for(node.replies, "an answer")
    assert answered == ["one", "two"]
    assert said == ["an answer is lost (ObjectPushError)"]


class Link:
    """What a SuperLink has of one node's answer: its parts come one by one."""

    def __init__(self, answer):
        self.announced, self.deleted, self.there, self.gone = False, [], set(), False
        self.tree = get_object_tree(answer)
        self.parts = {number: part.deflate() for number, part in get_all_nested_objects(answer).items()}
        self.message = message_to_proto(remove_content_from_message(answer))
        self.message.metadata.message_id = answer.object_id
        self.message.metadata.reply_to_message_id = "question"

    def PullMessages(self, request):  # noqa: N802
        if self.announced or list(request.message_ids) != ["question"]:
            return PullAppMessagesResponse()
        self.announced = True
        return PullAppMessagesResponse(messages_list=[self.message], message_object_trees=[self.tree])

    def PullObject(self, request):  # noqa: N802
        number = request.object_id
        if self.gone:
            return PullObjectResponse(object_found=False)
        content = self.parts[number] if number in self.there else b""
        return PullObjectResponse(object_found=True, object_available=bool(content), object_content=content)

    def ConfirmMessageReceived(self, request):  # noqa: N802
        self.deleted.append(request.message_object_id)


@pytest.fixture
def link(monkeypatch):
    for name in ("_task_id", "_run_id", "_node_id"):
        monkeypatch.setattr(TaskIdentity, name, 1)
    asked = Message(RecordDict(), dst_node_id=NODE, message_type="query")
    asked.metadata.__dict__["_message_id"] = "question"
    parts = {f"part {number}": ConfigRecord({"text": "x" * number}) for number in (10, 20)}
    return Link(Message(RecordDict(parts), reply_to=asked))


def answers_of(link):
    grid = SimpleNamespace(_runtime_client=link, node=Node(node_id=1), run=SimpleNamespace(run_id=1))
    return NodeAnswers(grid)


def test_an_answer_is_fetched_part_by_part_and_nobody_waits_for_the_rest(link):
    answers = answers_of(link)
    assert answers.pull("another", 10**6) is None
    for number in link.parts:
        assert answers.pull("question", 10**6) is None
        link.there.add(number)
    found = answers.pull("question", 10**6)
    assert {name: len(record["text"]) for name, record in found.content.items()} == {
        "part 10": 10,
        "part 20": 20,
    }
    assert link.deleted == [link.tree.object_id]
    assert answers.pull("question", 10**6) is None


def test_an_answer_that_is_too_large_is_given_up_and_thrown_away(link):
    link.there = set(link.parts)
    answers = answers_of(link)
    with pytest.raises(TooLargeError):
        answers.pull("question", 50)
    assert link.deleted == [link.tree.object_id]
    assert not answers._begun


def test_an_answer_whose_parts_the_link_has_given_up_is_lost(link):
    answers = answers_of(link)
    assert answers.pull("question", 10**6) is None
    link.gone = True
    with pytest.raises(ObjectPullError):
        answers.pull("question", 10**6)


def test_an_answer_that_nobody_wants_any_more_is_thrown_away(link):
    answers = answers_of(link)
    assert not answers.forget("another")
    assert answers.forget("question")
    assert link.deleted == [link.tree.object_id]
    assert not answers.forget("question")
