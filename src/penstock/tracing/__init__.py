"""Spans of OpenTelemetry around what an app enqueues and runs; `App(tracing=True)` begins it.

Only this package imports OpenTelemetry, and only an app that traces imports this package. The names follow the
conventions of OpenTelemetry for messaging; ADR 54 says what was decided where these leave a choice.

call_span    around a call that enqueues, or loads: its context is what the jobs carry
run_span     around each run of a handler: the middleware that continues from what a job carries
attributes   the names that both have in those conventions

A handler process imports `run_span` by its name, and needs nothing else of Penstock for it.
"""
