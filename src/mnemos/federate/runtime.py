"""What is taken from inside Flower 1.41: both ends of a federation in processes that stay.

Flower starts a fresh process for every message that a node gets, which imports everything, reads its data and
runs code that the server has sent along. Here a node's process stays, with its data and its model in memory,
and runs nothing but what is installed. The server's process does the rounds itself. Both take their work from
Flower's Runtime API, as its own executors do, which have to know a secret for it.
"""

from __future__ import annotations

import hashlib
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import httpx
from flwr.app import Context, Error, Message
from flwr.cli.build import build_fab_from_disk
from flwr.clientapp import ClientApp
from flwr.common.constant import ErrorCode, Status, SubStatus
from flwr.common.serde import context_from_proto, fab_to_proto, run_from_proto
from flwr.proto.control_pb2 import (
    ListNodesRequest,
    ListRunsRequest,
    RegisterNodeRequest,
    StartRunRequest,
    StopRunRequest,
    UnregisterNodeRequest,
)
from flwr.proto.node_pb2 import Node
from flwr.proto.runtime_pb2 import (
    AcquireTaskRequest,
    PullAppMessagesRequest,
    PullTaskInputRequest,
    PushTaskOutputRequest,
)
from flwr.serverapp import Grid
from flwr.supercore.constant import TaskType
from flwr.supercore.control.control_http_client import ControlHttpClient
from flwr.supercore.fab import Fab
from flwr.supercore.heartbeat import HeartbeatSender, make_task_heartbeat_fn_http
from flwr.supercore.inflatable.inflatable_object import iterate_object_tree
from flwr.supercore.inflatable.inflatable_protobuf_utils import (
    make_confirm_message_received_fn_protobuf,
    make_pull_object_fn_protobuf,
)
from flwr.supercore.inflatable.inflatable_utils import (
    ObjectUnavailableError,
    inflate_object_from_contents,
    pull_and_inflate_object_from_tree,
)
from flwr.supercore.interceptors import (
    RuntimeTokenHttpInterceptor,
    RuntimeVersionHttpInterceptor,
    SuperExecAuthHttpInterceptor,
)
from flwr.supercore.run import RunNotRunningException
from flwr.supercore.runtime import RuntimeHttpClient
from flwr.supercore.task_identity import TaskIdentity
from flwr.superlink.grid import HttpGrid
from flwr.supernode.runtime.run_clientapp import push_message, push_task_output

from mnemos.errors import ConfigError, MnemosError

_ACQUIRE = frozenset({"/flwr.proto.Runtime/AcquireTask"})
_NOT_KNOWN = {httpx.codes.UNAUTHORIZED, httpx.codes.FORBIDDEN}
_POLL = 0.1
"""Seconds between looks for work."""
_PART = 1.0
"""Seconds at most between looks for a part of a message."""
_AWAY = 60.0
"""Seconds that a SuperLink may be away; Flower itself would wait for ever."""


@dataclass(frozen=True)
class Door:
    """Where a Runtime API is, and what opens it."""

    address: str
    secret: bytes
    certificate: bytes | None = None
    """Of who has signed the server's; None: it speaks in plain."""

    def client(self, component: str, *interceptors: RuntimeTokenHttpInterceptor) -> RuntimeHttpClient:
        """A client, with a task's token if there is one, or else with the secret."""
        entry = interceptors or (
            SuperExecAuthHttpInterceptor(master_secret=self.secret, protected_methods=_ACQUIRE),
        )
        return RuntimeHttpClient.from_server_address(
            self.address,
            self.certificate is None,
            self.certificate,
            [RuntimeVersionHttpInterceptor(component_name=component), *entry],
        )


def answer_forever(
    door: Door, app: ClientApp, going: Callable[[], bool], say: Callable[[str], None] = print
) -> None:
    """Answer a node's messages, one after the other, as long as it is going; says what is lost."""
    with _closing(door.client("SuperExec")) as executor:
        while going():
            try:
                token = _acquired(executor)
            except httpx.HTTPError as error:
                # As a rule the node isn't up yet, or has just gone: the caller looks after it.
                if isinstance(error, httpx.HTTPStatusError) and error.response.status_code in _NOT_KNOWN:
                    raise MnemosError("the node doesn't know this process") from None
                token = None
            if token is None:
                time.sleep(_POLL)
            while token is not None:
                try:
                    token = _answer(door, token, app, partial(_acquired, executor))
                except Exception as error:
                    # As a rule the server was killed, and nobody waits any more; or else it will notice.
                    say(f"an answer is lost ({type(error).__name__})")
                    break


def _acquired(executor: RuntimeHttpClient) -> str | None:
    """The token of a node's next task, if there is one."""
    wanted = AcquireTaskRequest(supported_task_types=[TaskType.CLIENT_APP])
    return str(executor.AcquireTask(wanted).token) or None


def _answer(door: Door, token: str, app: ClientApp, following: Callable[[], str | None]) -> str | None:
    """Do a task; the token of the next one, if the node has begun it instead."""
    with _closing(door.client("flwr-clientapp", RuntimeTokenHttpInterceptor(token))) as client:
        try:
            with _beating(client):
                message, context = _pull(client, following)
                reply, status, details = _reply(app, message, context)
                push_message(client, reply, context)
        except _SupersededError as other:
            # Else the node would take it for a crash, and its report for the next task's answer.
            client.PushTaskOutput(PushTaskOutputRequest(sub_status=SubStatus.FAILED))
            return other.token
        push_task_output(client, context, status, details)
    return None


class _SupersededError(Exception):
    """A node has another task before all of a message has come."""

    def __init__(self, token: str) -> None:
        self.token = token


def _pull(client: RuntimeHttpClient, following: Callable[[], str | None]) -> tuple[Message, Context]:
    """A task's message.

    A task is there before all of its message is. If the server is killed in between, the rest never comes,
    and Flower would wait two hours for it. As a node has one message at a time, its next task tells.
    """
    task = client.PullTaskInput(PullTaskInputRequest())
    TaskIdentity.task_id, TaskIdentity.run_id = task.task_id, task.run.run_id
    TaskIdentity.node_id = task.context.node_id
    context = context_from_proto(task.context)
    trees = client.PullMessages(PullAppMessagesRequest()).message_object_trees
    if not trees:
        raise RuntimeError("a task without a message")
    node = Node(node_id=context.node_id)
    pull = make_pull_object_fn_protobuf(client.PullObject, node, context.run_id)
    confirm = make_confirm_message_received_fn_protobuf(client.ConfirmMessageReceived, node, context.run_id)

    def pull_or_leave(number: str) -> bytes:
        try:
            return pull(number)
        except ObjectUnavailableError:
            if (token := following()) is not None:
                raise _SupersededError(token) from None
            raise

    message = pull_and_inflate_object_from_tree(
        trees[0],
        pull_or_leave,
        confirm,
        return_type=Message,
        max_time=None,
        max_tries_per_object=None,
        initial_backoff=_POLL,
        backoff_cap=_PART,
    )
    message.metadata.__dict__["_message_id"] = trees[0].object_id  # it isn't among what a message is sent as
    return message, context


def _reply(app: ClientApp, message: Message, context: Context) -> tuple[Message, str, str]:
    try:
        return app(message=message, context=context), SubStatus.COMPLETED, ""
    except Exception as error:  # the server learns that it failed, and this process goes on
        traceback.print_exc()
        reason = type(error).__name__  # the rest may speak of the data
        failed = Error(code=ErrorCode.CLIENT_APP_RAISED_EXCEPTION, reason=reason)
        return Message(failed, reply_to=message), SubStatus.FAILED, reason


class Answers:
    """Answers to a grid's messages, fetched part by part as they come.

    Flower's own way waits for all parts once the first is there, and for up to two hours if their sender is
    slow or gone; whoever else has answered meanwhile would be too late.
    """

    def __init__(self, grid: HttpGrid) -> None:
        self._client, self._node, self._run = grid._runtime_client, grid.node, grid.run.run_id
        self._begun: dict[str, _Begun] = {}

    def pull(self, number: str, most: int) -> Message | None:
        """The answer to a message, once all of it is there; raises if it never will be, or is too large."""
        begun = self._begun.get(number) or self._announced(number)
        if begun is None:
            return None
        self._begun[number] = begun
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
            self.forget(number)
            raise
        self.forget(number)
        message = inflate_object_from_contents(begun.number, begun.parts)
        if not isinstance(message, Message):
            raise TypeError(f"found a {type(message).__name__}")
        return message

    def forget(self, number: str) -> bool:
        """Have the link throw away an answer; whether there was one."""
        begun = self._begun.pop(number, None) or self._announced(number)
        if begun is not None:
            confirm = make_confirm_message_received_fn_protobuf(
                self._client.ConfirmMessageReceived, self._node, self._run
            )
            confirm(begun.number)
        return begun is not None

    def _announced(self, number: str) -> _Begun | None:
        """The link gives it out once, and then only its parts."""
        found = self._client.PullMessages(PullAppMessagesRequest(message_ids=[number]))
        for message, tree in zip(found.messages_list, found.message_object_trees, strict=True):
            if message.metadata.reply_to_message_id == number:
                missing = list(dict.fromkeys(one.object_id for one in iterate_object_tree(tree)))
                return _Begun(message.metadata.message_id, missing)
        return None


@dataclass
class _Begun:
    """An answer of which some parts may be missing."""

    number: str
    missing: list[str]
    parts: dict[str, bytes] = field(default_factory=dict)


class TooLargeError(Exception):
    """An answer is larger than any that was asked for."""


class Control:
    """A SuperLink's Control API."""

    def __init__(self, address: str, certificate: bytes | None) -> None:
        self._client = ControlHttpClient.from_server_address(
            address, certificate is None, certificate, [RuntimeVersionHttpInterceptor(component_name="flwr")]
        )

    def admit(self, keys: Mapping[str, bytes], alone: bool) -> dict[int, str]:
        """Let the holders of these keys join, and nobody else if it is theirs alone: their names, by node."""
        listed = self._client.ListNodes(ListNodesRequest()).nodes_info
        nodes = {bytes(node.public_key): node.node_id for node in listed if node.public_key}
        for key, node in nodes.items():
            if alone and key not in keys.values():
                self._client.UnregisterNode(UnregisterNodeRequest(node_id=node))
        return {
            nodes[key]
            if key in nodes
            else self._client.RegisterNode(RegisterNodeRequest(public_key=key, name=name)).node_id: name
            for name, key in keys.items()
        }

    def stop_all(self) -> None:
        """Stop all runs: what a server that was killed has left behind, and nodes would still ask for."""
        for number, run in self._client.ListRuns(ListRunsRequest()).run_dict.items():
            if run.status.status != Status.FINISHED:
                self.stop(number)

    def stop(self, run: int) -> None:
        """Stop a run."""
        self._client.StopRun(StopRunRequest(run_id=run))

    def start(self, app: Path) -> int:
        """Start a run of an app: its number."""
        content = build_fab_from_disk(app)
        fab = Fab(hashlib.sha256(content).hexdigest(), content, {})
        return int(self._client.StartRun(StartRunRequest(fab=fab_to_proto(fab))).run_id)

    def close(self) -> None:
        """End the connection."""
        self._client.close()


@contextmanager
def serving(door: Door, run: int, timeout: float = 60.0) -> Iterator[Grid]:
    """The grid of a run, whose server this process is."""
    token = _token(door, run, timeout)
    grid = HttpGrid(door.address, door.certificate is None, door.certificate, token=token)
    grid._retry_invoker.max_time = _AWAY
    client, status = grid._runtime_client, SubStatus.FAILED
    try:
        with _beating(client):
            task = client.PullTaskInput(PullTaskInputRequest())
            TaskIdentity.task_id, TaskIdentity.run_id = task.task_id, task.run.run_id
            TaskIdentity.node_id = task.context.node_id
            grid.set_run(run_from_proto(task.run))
            yield grid
        status = SubStatus.COMPLETED
    except httpx.HTTPError as error:
        raise MnemosError(f"the SuperLink at {door.address} doesn't answer any more ({error})") from error
    except RunNotRunningException as error:
        raise MnemosError(f"somebody has stopped the run on the SuperLink at {door.address}") from error
    finally:
        grid._retry_invoker.max_tries = 1  # what can't be said now needn't be
        with suppress(httpx.HTTPError):  # the link may be gone already, and the run with it
            client.PushTaskOutput(PushTaskOutputRequest(sub_status=status))
        grid.close()


def _token(door: Door, run: int, timeout: float) -> str:
    end = time.monotonic() + timeout
    with _closing(door.client("SuperExec")) as executor:
        while time.monotonic() < end:
            try:
                found = executor.AcquireTask(AcquireTaskRequest(supported_task_types=[TaskType.SERVER_APP]))
            except httpx.HTTPStatusError as error:
                if error.response.status_code not in _NOT_KNOWN:
                    raise
                raise ConfigError(f"it isn't that of the SuperLink at {door.address}", "secret") from None
            # One left over from a server that was killed is nobody's any more.
            if found.token and found.task.run_id == run:
                return str(found.token)
            time.sleep(_POLL)
    raise MnemosError(f"the SuperLink at {door.address} has given no leave to serve within {timeout:g} s")


@contextmanager
def _closing(client: RuntimeHttpClient) -> Iterator[RuntimeHttpClient]:
    try:
        yield client
    finally:
        client.close()


@contextmanager
def _beating(client: RuntimeHttpClient) -> Iterator[None]:
    """Say now and then that the task is still being worked on."""
    heart = HeartbeatSender(make_task_heartbeat_fn_http(client))
    heart.start()
    try:
        yield
    finally:
        heart.stop()
