"""`ps.process`: the jobs of a queue run as Arrow batches on Spark's executors.

process          the call, and the driver's rounds of Spark jobs
executor_worker  a task of Spark that works through batches
shard_worker     the same task as a worker on one shard: claims, settles, renews
batch_run        one call of the handler, and the end of each of its rows
row_outcome      what a handler says of a row: Ok, RetryAfter, Dead
"""
