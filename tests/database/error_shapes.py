"""Errors, and what the database and Spark's report make of each."""

from __future__ import annotations

__all__ = ["SHAPES"]

SHAPES = {
    "ValueError: order 5 cannot be charged": "ValueError: order … cannot be charged",
    "ValueError: no\nasked by 7\n  File x": "ValueError: no",
    "Traceback (most recent call last):\n  File 'x', line 3\nValueError: no 7 of 8\n": "ValueError: no … of …",
    "LookupError: user 'ada' is not there": "LookupError: user … is not there",
    'Error: "a b" and `c` but not don\'t': "Error: … and … but not don't",
    "Can't open the customer's file": "Can't open the customer's file",
    "KeyError: 'card'": "KeyError: 'card'",
    "AttributeError: 'int' object has no attribute 'id'": "AttributeError: 'int' object has no attribute 'id'",
    "mail to ada.l+x@example.com bounced": "mail to … bounced",
    "https://api.x.com/v1/orders/123?page=2&q=x timed out": "https://api.x.com/v…/orders/… timed out",
    "id 3f2c6c1e-6f0a-4b43-9d5e-0d9f3c1a2b4c at 0xdeadbeef01": "id … at …",
    "cannot open /tmp/tmpab3x_9k/file": "cannot open /tmp/…/file",
    "none since 2026-11-19T03:52:11.123+00:00": "none since …",
    "[1, 2, 3] and [4, 5]": "[…] and […]",
    "S3Error: 12.5 s at 10:30 from 10.0.0.1:5432": "S…Error: … s at … from …",
    "facade is a face": "facade is a face",
    "été 'x' 5 über": "été … über",
    "windows\r\nrest": "windows",
    "": "",
}
