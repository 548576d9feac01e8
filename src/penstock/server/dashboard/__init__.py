"""The dashboard: pages that show and do what the API does, drawn on the server, and live.

dashboard     a request for a page comes in and is answered
entry         a page, or an act, as it is written down: its path and its function
view          what such a function is given: the API, links, the form that was sent
session       who looks: a token in a cookie, a proxy's user, or whoever sits at this machine
forms         forms that were sent, and that they come from a page of this server
arguments     arguments that somebody typed, passed on as they were written
live          open pages are drawn again every few seconds, each once for all who look at it
missing       what is not found, or is where nobody answers
confirmation  a page before something that is not undone
report_file   the page that Spark made of the history
drawn         templates, and how numbers, times and other people's words stand in them
static_files  the style sheet and the scripts
pictures      what pages of a job and of a queue draw: its life, its family, what happened over time
pages         all pages, each subject in a file: overview, queues, jobs, …

Reading works without JavaScript; with it, what has changed is put into the page as it happens. Every text that is
somebody else's is only text: templates escape whatever they are given.
"""

from penstock.server.dashboard.dashboard import Dashboard
from penstock.server.dashboard.report_file import ReportFile
from penstock.server.dashboard.session import TrustedProxy

__all__ = ["Dashboard", "ReportFile", "TrustedProxy"]
