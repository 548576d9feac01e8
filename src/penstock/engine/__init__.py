"""The engine: what everybody who runs jobs does with a database, a worker, an executor worker of Spark, a stream.

link           a connection that is made anew when it is lost, and how long that is tried
conversation   one holder's turns over a link, and finding out what became of one whose answer was lost
source         where the next jobs come from: plain_source claims, owned_source has its owner choose, mixed_source both
owner          which jobs of the partitions that it owns start next; owned_partition is what it has read of one,
               and of very many partition_watch knows where to look
leased_jobs    reading the jobs of new leases
load_traces    the trace context of a load, for its jobs
heartbeat      renews a holder's row
throttled_log  the same warning at most once a minute

Who *owns* partitions chooses from them; who *holds* leases renews, runs and settles. Both are rows of `worker`, and
mostly the same row. A user of the engine may own under one and act for many others that hold: each of them then has a
conversation of its own.

What a user has to do, in this order, and why. First:

 1. Register a row of `worker`, and start a heartbeat that renews it, with the time before it was sent to be
    registered: a lease counts from when its renewal was sent.
 2. Give each holder a conversation, with `on_doubt=source.forget`: what a source has read may be wrong once an answer
    is lost. A link on which several holders talk is shared by who acts for them (`link.share`): its session is ended
    when that one is declared dead, and not when one of them is.

In each turn:

 3. Ask the heartbeat. `is_declared_dead`: the row is gone, and others have what was owned and held under it; register
    anew. `mismatch`: settle what runs, take no more. `has_server_changed()`: `doubt` each conversation, since an older
    copy may take jobs for running that have ended. Of a lease that the holder knows that is found only when the last
    of its jobs has ended: doubt once more then (`Lease.is_in_doubt`).
 4. Let each conversation that is in doubt find out, by an `exchange`, before anything is chosen for anybody: nobody
    knows what a lost turn has leased, and a limit counts that. Its ends are the same as before: those that the lost
    turn did not write are written now, and those that it did write are not taken for lost. What it finds is held, and
    is to be started.
 5. `withhold` queues of which nothing can start, before the wish: what is claimed of them would have to go back. What
    is paused an owner reads by itself.
 6. `look`, before `note_ends`: a job that was noted as ended, and is still leased in the snapshot, would count as
    running elsewhere. It would keep its key, and its room under a limit, until the next look.
 7. `note_ends`, or `note_succeeded` for many, before `wish`: what ended makes room in the same turn.
 8. `wish`, for no more than `link.at_most` says: after a turn that was cancelled for taking too long that is less.
    For nothing where the conversation is in doubt.
 9. `exchange`. Its settlement names what it has `freed`: partitions with a limit in which others may sleep that wait
    for room; in owned ones nobody does but the owner. It is told which leases are known: all others that the holder
    is found to hold are new.
10. Keep in mind what came of it before anything else is asked: which leases are over, and by `learn` which are new.
    To ask may fail, and a lease that nobody knows of is held for as long as its holder lives. Who cannot do so
    registers anew after a failure.
11. `give_up` the `surplus`. What of it waits unstarted goes back in the exchange, so that the next owner finds it
    ready.
12. Unblock the `children` of what ended. Upkeep finds those that nobody did, but seconds later.
13. Read the jobs of the new leases (`read_leased`), and start them while the holder's row is certainly there
    (`heartbeat.is_valid`): after that others may have declared it dead, and run them.

At the end:

14. `leave` as soon as nothing is taken any more: others have the partitions at once. When everything is settled, stop
    the heartbeat and remove the row: what is left under it is rescued.
"""
