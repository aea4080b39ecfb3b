"""Truncated cross-entropy ("Reducing Forgetting in Federated Learning with Truncated Cross-Entropy")."""

from __future__ import annotations

from pydantic import Field
from torch import Tensor

from mnemos.objectives.objective import Counting, LabelAware, objectives
from mnemos.objectives.softmax import near_zero, nll, only_held, wide


@objectives.register("tce")
class TruncatedCrossEntropy(LabelAware):
    """Cross-entropy over the classes the client holds: −f_y + log Σ_{c: n_c > 0} exp f_c."""

    def __call__(self, logits: Tensor, labels: Tensor, counts: Tensor) -> Tensor:
        """Losses [B]."""
        scores = near_zero(wide(logits), lambda scores: only_held(scores, counts))
        return nll(only_held(scores, counts), labels)


@objectives.register("task-ce")
class TaskCrossEntropy(TruncatedCrossEntropy):
    """Cross-entropy over the classes of the tasks that the client has met so far, its present one included.

    As in FedSpace (Shenaj et al., 2023, arXiv 2304.03626). Where a stream has no tasks, it is cross-entropy.
    """

    counting: Counting = Field("tasks", description="as of `tce`")
