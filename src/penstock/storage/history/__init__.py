"""History, and its way into a lake.

bulk           history, waiting jobs and failures as Arrow batches
archive        slices on their way into a lake
lake_writings  what was written into lakes, and its fate
"""
