"""Running jobs, in this process, until there is nothing left to do or somebody says stop.

worker              the worker as a whole; on each database it has a
database_worker     that registers there, and has a
  conductor           settles and takes jobs, turn after turn
  served_queues       the queues it takes from, and which of them are closed just now
  worker_leases       the leases it knows of
  queue_caps          how many jobs of a queue the worker has at most, on all databases
  backlog             jobs that were taken and have not started, and those that ended since
  ended_jobs          those that ended, sorted for settling
  reporting           what a turn committed: told to counts, figures, log, hooks and upkeep
  job_figures         how many attempts ended and how, what jobs waited and ran, by task, for metrics
  settled_times       what jobs waited and ran, by queue, for the figures of each minute
  worker_heartbeat    renews its row; hears which jobs and queues are to stop
  last_minute         how many jobs ended in the last minute, as the heartbeat tells it
  listener            hears producers
  split_leases        finds out whether a handler's own transaction ended its job
  stop_request        whether it was told to stop, and until when it may wait
slot_pool           the slots, which run the jobs of all database workers:
  claimed_job         a job, from claim to settled end
  claimed_run         jobs of a key that one slot runs one after the other
  running             calls its handler
  quick_run           the same for jobs that need nothing else, many in a row
  batch_run           calls one that is given several jobs together
  threads             run plain handlers
  event_loop          runs async ones
  handler_process     runs those with executor="process"; handler_process_main is what that process does
  context             what it may know and say
hooks               functions of the application, called when something becomes of a job
end_log             tells the log how jobs end
watchdog            finds handlers that do not come back
idle_rounds         finds out that nothing is left to do anywhere
snapshot            how a worker stands, for metrics and probes
"""

from penstock.worker.handler_process import check_middleware
from penstock.worker.handler_process_main import refuse_in_main_import
from penstock.worker.hooks import Event, EventName, Hooks
from penstock.worker.job_figures import BOUNDS, TaskFigures
from penstock.worker.served_queues import ServedQueue
from penstock.worker.snapshot import DatabaseSnapshot, WorkerSnapshot
from penstock.worker.worker import ServedDatabase, Worked, Worker

__all__ = [
    "BOUNDS",
    "DatabaseSnapshot",
    "Event",
    "EventName",
    "Hooks",
    "ServedDatabase",
    "ServedQueue",
    "TaskFigures",
    "Worked",
    "Worker",
    "WorkerSnapshot",
    "check_middleware",
    "refuse_in_main_import",
]
