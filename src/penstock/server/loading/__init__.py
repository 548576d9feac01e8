"""A body that comes over HTTP becomes a load: staged as it arrives, published whole, once for its name. Without Spark.

receive          `receive_load`: what the HTTP layer calls for a PUT
load_request     what it is asked for and answers, checked; the limits
staging          jobs are written in threads of their own while the next are read
content          what a body is, by its Content-Type; gzip
blocks           pieces of a body as blocks that end with a row
json_rows        NDJSON
csv_rows         CSV
arrow_rows       an Arrow IPC stream
parquet_rows     Parquet, by a temporary file
parquet_process  the process that reads that file, in bounded memory
typed_rows       what CSV, Arrow and Parquet have in common: columns with types
plain_types      Arrow's types as loads know them
refusing         what is said of a row that cannot be a job
row_order        `order_by`: rows must arrive in that order

What a load has in common with one from Spark is in `penstock.loading`.
"""
