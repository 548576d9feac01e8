"""What batches on executors and streams of jobs share: both claim jobs and show them to Spark.

job_batch    claimed jobs as an Arrow batch
known_tasks  which tasks of a queue are taken, and what each was declared with
worker_row   the row by which a process of Spark's is a worker
"""
