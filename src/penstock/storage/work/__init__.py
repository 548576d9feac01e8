"""What a worker does with the database.

workers                who is alive, asleep, asked to stop
leases                 a worker's right to jobs of a range; the jobs of leases are read
owner                  what the owner of a partition asks
permits                what a queue's partitions do with their permits and tokens, and the lead's ledger of them
exchange               a turn: settle and take, in one transaction
settle                 how the ends of jobs are told
settle_in_transaction  the end of one job, in its handler's own transaction
load_traces            in which traces loads were made
set_aside              jobs that cannot be read, or whose end cannot be written
remote_workers         workers for which servers act: their polls, and what came of them
spark_workers          what executor workers and streams of Spark ask beyond what every worker does
"""
