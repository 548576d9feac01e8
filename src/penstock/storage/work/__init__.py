"""What a worker does with the database.

workers      who is alive, asleep, asked to stop
claim        ready ranges become leases; the jobs of leases are read
owner        what the owner of a partition asks
exchange     a turn: settle and take, in one transaction
settle       how the ends of jobs are told
set_aside    jobs that cannot be read, or whose end cannot be written
spark_slots  what a task of Spark asks beyond what every worker does
"""
