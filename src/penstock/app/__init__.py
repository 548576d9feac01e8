"""The one object a user holds.

app               what a user calls; each call is handed on
access            how a call reaches the databases, within its deadline
calls             which calls ask, change, or change in steps, and the deadline that each has
auditing          what acts enter in the audit, and when
connecting        from URLs or embedded servers to databases that are ready
embedded_servers  which folder they are in, whether they may be created, and what is said of that
declarations      the queues, tasks and crons that were declared, and what the database says of them
sending           where every enqueue arrives
traced_sender     the same in an app that traces
results           waiting for a job's end
working           the calls of `work` under way; signals: what SIGTERM and SIGINT do meanwhile
inputs            what users give, checked
"""

from penstock.app.app import App

__all__ = ["App"]
