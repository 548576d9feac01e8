"""Loads: rows of a DataFrame become jobs of a queue, all at once, once for each name.

load            `ps.load`: plans, sorts and writes a DataFrame
input_files     a file or table as a DataFrame, for `penstock load`
load_plan       the checked options of a load; sent to every task
column_types    Spark's types as those of Arrow
row_order       `order_by` without a shuffle: each task sorts, the driver orders the tasks
load_writer     what Spark calls: tasks stage, the driver publishes; as a batch and as a stream
bad_rows        the file of rows that could not become jobs

What a load from Spark has in common with one from elsewhere is in `penstock.loading`.
"""
