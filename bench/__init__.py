"""The figures Penstock claims, one file a question: `python -m bench`, or `make bench`.

Each question is measured side by side with what it is compared to, in one run, on one PostgreSQL server started for it
in a folder that is thrown away, with the durability PostgreSQL has by default (fsync, synchronous_commit and
full_page_writes on). Jobs are counted when they are durably completed, by what the database says. Every side starts
with a fresh database and right after a checkpoint; sides take turns, so that a noisy moment meets both.

    cycle             whole cycles a second against raw COPY, and WAL a job
    bulk_enqueue      enqueue_many against raw COPY
    single_enqueue    enqueue against one INSERT and commit, and against PgQueuer's
    meeting_calls     calls of threads and tasks at the same time, against one call of as many jobs
    copy_or_insert    from how many jobs on COPY beats one statement
    backlog           drain rate behind a small and a large backlog
    held_transaction  the cycle while another transaction stays open
    producers         four producers on one partition and on four
    pickup            how soon an idle worker starts a job, against a raw NOTIFY
    memory            a worker's memory while it drains
    storage_json      arguments as json and as jsonb
    history_form      history as a row a settled lease and as a row a job
    ordered           whole cycles with order per key, against a plain queue
    deep_key          other keys behind one with a million waiting jobs
    held_key          how soon other keys start while one is held by a retry
    limit_slots       a limit across many workers: never exceeded, its places used
    total_limit       a limit over several partitions: its permits used while the load shifts, and what that costs
    total_rate        a rate over several partitions: how much of it is used, and what that costs
    fairness          how long a small tenant waits beside a large one
    resizing          what a resize under load does to order, jobs and producers
    spark_load        a load from Spark, against plain COPY of the same rows
    key_routing       keys routed by Spark's functions and by Python
    spark_process     jobs run by Spark's executors, against plain workers
    peers             other queues for Python on the same server; only when named, because it installs them

    compare     what is here beside an earlier commit: `python -m bench compare COMMIT [name …]`
    run         a question under way: how large, how often, what was found
    report      figures, with their bars, as a table and as JSON
    server      the PostgreSQL that is thrown away
    workload    the task and the arguments that all of them use
    processes   producers and workers in processes of their own
    completion  counting what is durably done
    raw_copy    the floor: the same rows by COPY alone
"""
