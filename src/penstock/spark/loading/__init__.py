"""Loads: rows of a DataFrame become jobs of a queue, all at once, once for each name.

load            `ps.load`: plans, sorts and writes a DataFrame
input_files     a file or table as a DataFrame, for `penstock load`
load_plan       the checked options of a load; sent to every task
declared_tasks  whether columns are what a task of the app takes
column_types    which of Spark's types can be a key, an option or an argument
job_columns     jobs column by column, and the rows that cannot be jobs
row_reader      checks and converts rows into job columns
row_values      the same for single values
row_order       `order_by` without a shuffle: each task sorts, the driver orders the tasks
stage_writer    columns of jobs are written as ranges of a stage
load_writer     what Spark calls: tasks stage, the driver publishes; as a batch and as a stream
bad_rows        the file of rows that could not become jobs
"""
