"""`ps.process`: the jobs of a queue run as Arrow batches on Spark's executors.

process          the call: checks, plans, does upkeep while rounds run
rounds           the driver's side: one job of Spark after the other
work_plan        what every executor worker is told
executor_worker  a task of Spark that works through batches
shard_worker     the same task as a worker on one shard: claims, settles, renews
batch_run        one call of the handler, and the end of each of its rows
row_outcome      what a handler says of a row: Ok, RetryAfter, Dead
"""
