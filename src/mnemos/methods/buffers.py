"""What happens to batch-norm statistics and other buffers."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor

from mnemos.methods.part import BufferPolicy, buffer_policies


@buffer_policies.register("average")
class AverageBuffers(BufferPolicy):
    """Buffers are averaged like the model."""

    def next(self, server: Tensor, mean: Tensor) -> Tensor:
        """The cohort's mean."""
        return mean


@buffer_policies.register("local")
class LocalBuffers(AverageBuffers):
    """Every client goes on with its own buffers; the server's, their mean, serve the global model alone.

    The statistics' half of FedBN (Li et al., 2021, arXiv 2102.07623).
    """

    local: ClassVar[bool] = True
    received: ClassVar[bool] = False


@buffer_policies.register("server")
class KeepServerBuffers(BufferPolicy):
    """The server keeps its own buffers; what clients measured is dropped."""

    sent: ClassVar[bool] = False

    def next(self, server: Tensor, mean: Tensor) -> Tensor:
        """The server's present buffers."""
        return server


@buffer_policies.register("leave-out")
class LeaveOutBuffers(KeepServerBuffers):
    """Nobody uses running statistics: batch-norm takes the batch's own in evaluation too."""

    received: ClassVar[bool] = False
    in_batches: ClassVar[bool] = True
