"""Producing jobs: declaring queues and tasks, and enqueuing.

task            queues and tasks as an application writes them down
options         what may be said about a single job
pending         jobs that are not written yet
call            one call, and the writes that it is planned as
planning        which jobs of a call are written where
grouping        from pending jobs to groups of one destination
producer        writes a call, and keeps trying until its time is up
committer       one try of a planned write; what became of it where the answer was lost
waiting_line    which calls wait for others that are under way, and who writes them
merging         several calls in one transaction
loop_sender     calls of coroutines, written by one thread
callers_writer  a call in the transaction of its caller
checks          what would refuse a call, before it is written
map_wait        waiting for a key map that is not open yet
refusals        what is said when a call cannot be done
call_in_thread  a call of a coroutine, in a thread
testing         jobs in memory, for users' own tests
"""

from penstock.client.pending import PendingJob
from penstock.client.producer import Producer
from penstock.client.task import Bound, Queue, Task, TaskWithContext

__all__ = ["Bound", "PendingJob", "Producer", "Queue", "Task", "TaskWithContext"]
