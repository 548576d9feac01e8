"""The lake: finished jobs in Parquet files, or in a Delta or Iceberg table, and what is read from there.

archive          `ps.archive`: puts finished jobs into the lake, verifies them, drops them from the database
history          `ps.history`: database and lake in one DataFrame
replay           `ps.replay`: enqueues jobs of the past again
open_lake        the lake of a database, of one of these formats
parquet_lake     a lake of Parquet files: its folders, its manifest, the checksum of a slice
table_lake       a lake that is a Delta or Iceberg table
lake_files       files wherever Spark can write them
consistency      refuses where database and lake do not know the same past
unread           what is in a lake alone, as the databases know it
archived_slices  slices that left the database while a query ran, read by its tasks
"""
