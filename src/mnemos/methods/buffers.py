"""Policies for batch-norm statistics and other buffers."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor

from mnemos.methods.part import BufferPolicy, buffer_policies


@buffer_policies.register("average")
class AverageBuffers(BufferPolicy):
    """Clients' buffers are averaged like their models."""

    @property
    def moves(self) -> float:
        """All the way."""
        return 1.0

    def next(self, server: Tensor, mean: Tensor) -> Tensor:
        """The cohort's mean."""
        return mean


@buffer_policies.register("local")
class LocalBuffers(AverageBuffers):
    """Each client keeps its own buffers; their mean is used for evaluating the global model only.

    This is FedBN (Li et al., 2021, arXiv 2102.07623) for the statistics, but not for scale and shift.
    """

    local: ClassVar[bool] = True
    received: ClassVar[bool] = False


@buffer_policies.register("server")
class KeepServerBuffers(BufferPolicy):
    """The server keeps its own buffers, and clients' buffers are dropped."""

    sent: ClassVar[bool] = False

    def next(self, server: Tensor, mean: Tensor) -> Tensor:
        """The server's present buffers."""
        return server


@buffer_policies.register("leave-out")
class LeaveOutBuffers(KeepServerBuffers):
    """Running statistics aren't used: batch-norm uses the batch's own statistics in evaluation too."""

    received: ClassVar[bool] = False
    in_batches: ClassVar[bool] = True
