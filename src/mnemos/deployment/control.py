"""Flower 1.41's Control API: admitting nodes, and starting and stopping runs."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

from flwr.cli.build import build_fab_from_disk
from flwr.common.constant import Status
from flwr.common.serde import fab_to_proto
from flwr.proto.control_pb2 import (
    ListNodesRequest,
    ListRunsRequest,
    RegisterNodeRequest,
    StartRunRequest,
    StopRunRequest,
    UnregisterNodeRequest,
)
from flwr.supercore.control.control_http_client import ControlHttpClient
from flwr.supercore.fab import Fab
from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor


class Control:
    """A connection to a SuperLink's Control API."""

    def __init__(self, address: str, certificate: bytes | None) -> None:
        self._client = ControlHttpClient.from_server_address(
            address, certificate is None, certificate, [RuntimeVersionHttpInterceptor(component_name="flwr")]
        )

    def admit(self, keys: Mapping[str, bytes], alone: bool) -> dict[int, str]:
        """Let the owners of these keys, given by name, join; with `alone`, remove all other nodes.

        Returns the owners' names by node.
        """
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

    def knows(self, key: bytes) -> bool:
        """Whether a node with this public key may join."""
        listed = self._client.ListNodes(ListNodesRequest()).nodes_info
        return any(bytes(node.public_key) == key for node in listed)

    def stop_all(self) -> None:
        """Stop all runs. A server that was killed leaves a run behind, for which nodes would still work."""
        for run_id, run in self._client.ListRuns(ListRunsRequest()).run_dict.items():
            if run.status.status != Status.FINISHED:
                self.stop(run_id)

    def stop(self, run: int) -> None:
        """Stop a run."""
        self._client.StopRun(StopRunRequest(run_id=run))

    def start(self, app: Path) -> int:
        """Start a run of the app in a folder; returns the run's id."""
        content = build_fab_from_disk(app)
        fab = Fab(hashlib.sha256(content).hexdigest(), content, {})
        return int(self._client.StartRun(StartRunRequest(fab=fab_to_proto(fab))).run_id)

    def close(self) -> None:
        """End the connection."""
        self._client.close()
