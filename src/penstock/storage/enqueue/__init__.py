"""Writing jobs.

job_group         the jobs of a call that have one destination; the ranges they become
write             from such groups to what is sent
merged            the groups of several calls, sent as one
copy_format       jobs as lines for COPY
idempotency       who has an idempotency key
steps             how what is sent is sent: in a transaction of its own or a caller's, in coroutines or not
receipts          finding out, after a lost answer, whether a call was written
callers_database  which database a caller's connection leads to
"""
