"""A client at Flower's own Runtime API, with a SuperLink that is made up."""

import hashlib
import threading
from contextlib import contextmanager

import pytest
import uvicorn
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.cli.build import build_fab_from_disk
from flwr.clientapp import ClientApp
from flwr.supercore.fab import Fab
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_tree
from flwr.supercore.object_store import ObjectStoreFactory
from flwr.supercore.run import Run, RunNotRunningException
from flwr.supercore.task_identity import TaskIdentity
from flwr.supernode.main import create_app
from flwr.supernode.nodestate import NodeStateFactory
from flwr.supernode.start_client_internal import _pull_and_store_message

from mnemos.federate.init import write_app
from mnemos.federate.processes import free_port
from mnemos.federate.runtime import Door, answer_forever
from patience import wait_for

pytestmark = [
    pytest.mark.timeout(300),
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
def running(node, app):
    """A node's Runtime API, and a client that answers its messages."""
    going = True
    threads = [
        threading.Thread(target=node.server.run),
        threading.Thread(target=lambda: answer_forever(node.door, app, lambda: going)),
    ]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        going = False
        threads[1].join(30)
        node.server.should_exit = True
        threads[0].join(30)
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
