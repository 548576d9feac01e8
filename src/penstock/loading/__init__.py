"""Rows become staged jobs, by whoever brings them: Spark's tasks, or the server for a body that came over HTTP.

Rows are batches of Arrow. What a column means, which values are refused and how they are written is the same for all
who load, and the same as for `enqueue`; what a load is published by is `penstock.shards.publishing`.

columns         which columns are arguments, the key and options of jobs
column_types    what a column may be, by its type, and how its values become JSON
declared_tasks  whether columns are what a task of the app takes
job_columns     jobs column by column, and the rows that cannot be jobs
row_reader      checks and converts rows into job columns
row_values      the same for single values
destination     the partitions of the queue, and the shards they are on
stage_writer    columns of jobs are written as ranges of a stage
"""
