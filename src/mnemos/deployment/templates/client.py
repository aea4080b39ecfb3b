"""What an owner's node runs."""

from mnemos.deployment.apps import client as app

__all__ = ["app"]
