"""History, and its way into a lake.

bulk           history, waiting jobs and failures as Arrow batches
conditions     what is asked of single columns there
archive        slices on their way into a lake
lake_writings  what was written into lakes, and its fate
"""
