"""What the server runs."""

from mnemos.federate.apps import server as app

__all__ = ["app"]
