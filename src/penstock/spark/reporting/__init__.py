"""`ps.report`: what the history says, as figures and as one page to look at.

report          the call: reads, measures, writes the page
measure         the figures, counted by Spark, with one file for each subject:
                job_times, failure_causes, error_shape, distribution, turns
figures         the figures as plain values
skew            the arithmetic of uneven keys
key_time        what a key needs for its jobs alone
page            the page, with its sections in time_sections and share_sections, drawn with penstock.drawing
"""
