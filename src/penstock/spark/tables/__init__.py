"""Penstock's tables as DataFrames: `spark.read.format("penstock").option("table", …)`.

table_reader    cuts a table into intervals and reads each by a task
columns         the columns of each table, and of history
row_filter      which rows are asked for: queue, task, outcome or state, key, time
row_conversion  rows of PostgreSQL with the types that Spark expects, keys as text
"""
