"""The door: everything of Penstock over HTTP, for programs in any language.

Nothing here holds logic of its own: it calls the app, and what the app calls.

application   a request comes in and is answered
router        which operation a path and method mean
operation     an operation, as router, guard and document read it; `operations` lists all of them
guard         who calls: a token's bearer, or whoever sits at this machine; `caller`: what they may;
              `call_rates`: how often
standing_calls   calls that go on: they end when their token does
call          what a handler knows of the request it answers
body          reading bodies, bounded
values        what comes over HTTP as typed values
problem       what goes wrong, as an answer
openapi       the document, made of the operations
threads       where calls that block are made
outside       metrics and probes
produce       enqueuing
remote_work   workers in any language; `remote`: how a server acts for them
load_bodies   loads as bodies; `body_pipe`: how they get to a thread; `loading`: what becomes of them
serving       the server as a program; `processes`: several of one; `beside`: with a worker
machine_token the token of whoever runs `penstock up`
jobs          jobs to look at and to wait for; `job_acts`: to cancel, retry, reschedule
job_filters   by what jobs are chosen
queues        queues made, deleted and looked at; `queue_acts`: what is done to them
loads, crons, due, shards, worker_list, tokens, audit, attention, search, doctor   these, as the app has them
causes        why jobs fail
events        server-sent events; `feed`: the one reader behind them; `job_ends`: who waits for jobs to end
dashboard     the pages; `inner_api`: by which way they ask
narrowing     what a token for some queues or a tenant is shown
"""

from pathlib import Path

from penstock.app import App
from penstock.server.application import Application
from penstock.server.dashboard import ReportFile, TrustedProxy

__all__ = ["Application", "ReportFile", "TrustedProxy", "asgi"]


def asgi(app: App, *, trusted_proxy: TrustedProxy | None = None, report: str | Path | None = None) -> Application:
    """The API and the dashboard as an ASGI application, to be mounted in one's own. It always asks for a token, but of
    whom `trusted_proxy` signs in to the dashboard; that shows the page which `penstock report` wrote to `report`.
    """
    file = None if report is None else ReportFile(report)
    return Application(app, is_local=False, trusted_proxy=trusted_proxy, report=file)
