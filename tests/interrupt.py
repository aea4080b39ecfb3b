"""Someone who interrupts a run."""

from mnemos.runs.execute import Silent


class Stop(Silent):
    """Interrupts a run after some rounds."""

    def __init__(self, after):
        super().__init__()
        self.after = after

    def round(self, outcome):
        if outcome.round >= self.after:
            raise KeyboardInterrupt
