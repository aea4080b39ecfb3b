"""What the server runs."""

from mnemos.deployment.apps import server as app

__all__ = ["app"]
