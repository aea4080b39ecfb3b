"""The Runtime API of Flower 1.41, with which both ends of a federation work in long-lived processes.

Flower itself starts a new process for every message that a node gets; it imports everything, reads the data
and runs code that the server has sent. Here, a node's process stays, with its data and its model in memory,
and runs only code that is installed. The server's process does the rounds itself. Both get their work from
the Runtime API like Flower's own executors, which need a secret for it.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial

import httpx
from flwr.app import Context, Error, Message
from flwr.clientapp import ClientApp
from flwr.common.constant import ErrorCode, SubStatus
from flwr.common.serde import context_from_proto, run_from_proto
from flwr.proto.node_pb2 import Node
from flwr.proto.runtime_pb2 import (
    AcquireTaskRequest,
    PullAppMessagesRequest,
    PullTaskInputRequest,
    PushTaskOutputRequest,
)
from flwr.serverapp import Grid
from flwr.supercore.constant import TaskType
from flwr.supercore.heartbeat import HeartbeatSender, make_task_heartbeat_fn_http
from flwr.supercore.inflatable.inflatable_protobuf_utils import (
    make_confirm_message_received_fn_protobuf,
    make_pull_object_fn_protobuf,
)
from flwr.supercore.inflatable.inflatable_utils import (
    ObjectUnavailableError,
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
"""Seconds between requests for work."""
_PART = 1.0
"""The most seconds between requests for a part of a message."""
_AWAY = 60.0
"""Seconds after which a SuperLink that doesn't answer is given up; Flower itself would wait for ever."""


@dataclass(frozen=True)
class Door:
    """The address of a Runtime API, and the secret for it."""

    address: str
    secret: bytes
    certificate: bytes | None = None
    """The certificate of the authority that has signed the server's; None for a plain connection."""

    def client(self, component: str, *interceptors: RuntimeTokenHttpInterceptor) -> RuntimeHttpClient:
        """A client of the API, which sends a task's token if an interceptor is given, else the secret."""
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
    """Answer a node's messages with an app, one after another, while `going()` is true.

    `say` is told about answers that are lost.
    """
    with _closing(door.client("SuperExec")) as executor:
        while going():
            try:
                token = _acquired(executor)
            except httpx.HTTPError as error:
                # Mostly the node isn't up yet, or has just ended, which `going` finds out.
                if isinstance(error, httpx.HTTPStatusError) and error.response.status_code in _NOT_KNOWN:
                    raise MnemosError("the node doesn't know this process") from None
                token = None
            if token is None:
                time.sleep(_POLL)
            while token is not None:
                try:
                    token = _answer(door, token, app, partial(_acquired, executor))
                except Exception as error:
                    # Mostly the server was killed and doesn't wait for the answer; else it will time out.
                    say(f"an answer is lost ({type(error).__name__})")
                    break


def _acquired(executor: RuntimeHttpClient) -> str | None:
    """The token of a node's next task; None if there is none."""
    wanted = AcquireTaskRequest(supported_task_types=[TaskType.CLIENT_APP])
    return str(executor.AcquireTask(wanted).token) or None


def _answer(door: Door, token: str, app: ClientApp, following: Callable[[], str | None]) -> str | None:
    """Do a task. Returns the token of the node's next task if that replaces this one, else None."""
    with _closing(door.client("flwr-clientapp", RuntimeTokenHttpInterceptor(token))) as client:
        try:
            with _beating(client):
                message, context = _pull(client, following)
                reply, status, details = _reply(app, message, context)
                push_message(client, reply, context)
        except _SupersededError as other:
            # Without this, the node would take the task as crashed, and its report as the next task's answer.
            client.PushTaskOutput(PushTaskOutputRequest(sub_status=SubStatus.FAILED))
            return other.token
        push_task_output(client, context, status, details)
    return None


class _SupersededError(Exception):
    """A node has a new task before all parts of the current message have arrived."""

    def __init__(self, token: str) -> None:
        self.token = token


def _pull(client: RuntimeHttpClient, following: Callable[[], str | None]) -> tuple[Message, Context]:
    """Receive a task's message; a _SupersededError if the rest of it will never come.

    A task begins before all of its message has arrived. If the server is killed in between, the rest never
    comes, and Flower would wait for two hours. A node has one message at a time, so its next task, which
    `following` returns, means that the rest won't come.
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

    def pull_or_leave(object_id: str) -> bytes:
        """Fetch a part of the message."""
        try:
            return pull(object_id)
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
    message.metadata.__dict__["_message_id"] = trees[0].object_id  # the id isn't sent with a message
    return message, context


def _reply(app: ClientApp, message: Message, context: Context) -> tuple[Message, str, str]:
    """The app's reply to a message, with the status and its details."""
    try:
        return app(message=message, context=context), SubStatus.COMPLETED, ""
    except Exception as error:  # the server is told that it failed, and this process goes on
        traceback.print_exc()
        reason = type(error).__name__  # the error's text may be about the data
        failed = Error(code=ErrorCode.CLIENT_APP_RAISED_EXCEPTION, reason=reason)
        return Message(failed, reply_to=message), SubStatus.FAILED, reason


@contextmanager
def serving(door: Door, run: int, timeout: float = 60.0) -> Iterator[Grid]:
    """Be the server of a run: yield its grid.

    `timeout` is how many seconds to wait for the run's task.
    """
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
        raise MnemosError(f"the SuperLink at {door.address} no longer answers ({error})") from error
    except RunNotRunningException as error:
        raise MnemosError(f"the run on the SuperLink at {door.address} was stopped") from error
    finally:
        grid._retry_invoker.max_tries = 1  # the end is reported once, without retries
        with suppress(httpx.HTTPError):  # the SuperLink may have ended, and the run with it
            client.PushTaskOutput(PushTaskOutputRequest(sub_status=status))
        grid.close()


def _token(door: Door, run: int, timeout: float) -> str:
    """Wait for the task of a run's server; returns its token."""
    end = time.monotonic() + timeout
    with _closing(door.client("SuperExec")) as executor:
        while time.monotonic() < end:
            try:
                found = executor.AcquireTask(AcquireTaskRequest(supported_task_types=[TaskType.SERVER_APP]))
            except httpx.HTTPStatusError as error:
                if error.response.status_code not in _NOT_KNOWN:
                    raise
                raise ConfigError(f"it isn't that of the SuperLink at {door.address}", "secret") from None
            # A task of another run is left over from a server that was killed.
            if found.token and found.task.run_id == run:
                return str(found.token)
            time.sleep(_POLL)
    raise MnemosError(
        f"the SuperLink at {door.address} hasn't allowed this server to serve within {timeout:g} s"
    )


@contextmanager
def _closing(client: RuntimeHttpClient) -> Iterator[RuntimeHttpClient]:
    try:
        yield client
    finally:
        client.close()


@contextmanager
def _beating(client: RuntimeHttpClient) -> Iterator[None]:
    """Around work on a task: send heartbeats, so that Flower doesn't take the process as dead."""
    heart = HeartbeatSender(make_task_heartbeat_fn_http(client))
    heart.start()
    try:
        yield
    finally:
        heart.stop()
