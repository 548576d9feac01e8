"""A queue as a stream: `spark.readStream.format("penstock")`. (Streams into a queue are loads, see `loading`.)

stream_reader   what Spark calls: the driver plans batches from leases, executors read their jobs
stream_options  the options of such a stream, checked
stream_offset   which leases a batch holds, as Spark's checkpoint keeps it
consumer        claims and settles on all shards that have partitions of the queue
shard_consumer  the same on one shard: a worker whose row outlives the query's process
"""
