"""The schema: what a database holds, and how it comes to a newer version while programs of several versions use it.

    tables/NNNN_*.sql      all that holds data, or that this needs: tables, types, sequences, indexes, triggers with
                           their functions. Each file is applied once, forward only, in a transaction of its own
    functions/NN_*.sql     functions and views, applied as one set, again whenever a program brings a newer one. In the
    functions/shards/      order of their files' names, whichever folder they are in: what a bound body (`begin atomic`,
                           `return`) names must be there before it
    around/                what is done before and after the set, in its transaction

    files      the files, as one value: `Schema`
    state      what a database has, and whether a program fits it
    steps      what is left to do; `penstock sql` prints them
    migration  does it

The set has a version. A database takes a higher one, and never a lower one: of programs of two versions the older uses
the newer functions. How old it may be is said by the set (`oldest_program`), and asked for at the start and with each
renewal of a lease.
"""

from penstock.storage.schema.files import OURS, Schema, TableFile
from penstock.storage.schema.migration import migrate
from penstock.storage.schema.state import (
    EMPTY,
    AppliedSchema,
    check_schema,
    describe,
    owner_of,
    read_state,
    refuse,
    refuse_newer,
)
from penstock.storage.schema.steps import SchemaStep, plan, script, transaction

__all__ = [
    "EMPTY",
    "OURS",
    "AppliedSchema",
    "Schema",
    "SchemaStep",
    "TableFile",
    "check_schema",
    "describe",
    "migrate",
    "owner_of",
    "plan",
    "read_state",
    "refuse",
    "refuse_newer",
    "script",
    "transaction",
]
