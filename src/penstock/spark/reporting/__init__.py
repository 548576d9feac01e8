"""`ps.report`: what the history says, as figures and as one page to look at.

report          the call: reads, measures, writes the page
measure         the figures, counted by Spark, with one file for each subject:
                job_times, failure_causes, error_shape, distribution, turns
figures         the figures as plain values
axis, skew      the arithmetic of scales, and of uneven keys
key_time        what a key needs for its jobs alone
page            the page, with its sections in time_sections and share_sections
charts          the plots, as SVG
html_parts      the document, its sections, tiles and tables; style.css: how they look
formatting      numbers, times and foreign text as HTML
"""
