"""Remote workers: programs in any language that run jobs, and call a server for them.

Each is a row of `worker` and holds its leases itself; a server only acts for it, and each call may come to another
one. What a call did is kept with what it did it to, so that the same call again is answered the same. A server itself
is a row of `worker`, too, by which it owns partitions of queues with rules about keys while workers that poll it want
jobs of those.

remote_workers     what the HTTP API calls: register, poll, renew, leave
messages           what is said, as JSON; job_names: how jobs and leases are named in it
registered_worker  what a worker announced, checked and stored
poll_call          one request of a poll, from greeting to answer; stands: how it stands on each database
ends               how jobs ended, as it is said and as it is settled
polled_times       how long jobs waited and ran, for the figures of each minute
turns              a turn on one database; plain_lane and owned_lane: the two ways it goes
waiting_polls      polls that wait, in lines; wake_calls: being woken by producers
remote_shard       all of it on one database: threads, and rounds for open polls
server_row         the server's own row
timeouts           jobs that have run for too long
"""

from penstock.server.remote.remote_workers import RemoteWorkers

__all__ = ["RemoteWorkers"]
