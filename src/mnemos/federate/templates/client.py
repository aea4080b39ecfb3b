"""What an owner's node runs."""

from mnemos.federate.apps import client as app

__all__ = ["app"]
