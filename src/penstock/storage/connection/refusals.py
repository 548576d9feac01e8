"""What a server says no with, as the driver names it: for those above who tell one no from another."""

from psycopg.errors import (
    ConfigurationLimitExceeded,
    InsufficientPrivilege,
    InvalidParameterValue,
    LockNotAvailable,
    ObjectInUse,
)

__all__ = [
    "ConfigurationLimitExceeded",
    "InsufficientPrivilege",
    "InvalidParameterValue",
    "LockNotAvailable",
    "ObjectInUse",
]
