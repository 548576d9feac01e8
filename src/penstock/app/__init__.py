"""The one object a user holds: see `penstock.app.app`."""

from penstock.app.app import App

__all__ = ["App"]
