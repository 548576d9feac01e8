"""The report: what the history says, as figures and as one page to look at.

making      `ps.report`: reads, measures, writes
measuring   the figures, counted by Spark; timed, failing, distribution: by subject; axis, skew: the arithmetic
figures     the figures as plain values
page        the page; over_time, by_share: its sections; charts: its plots; frame, writing, style.css: how it is written
"""

from penstock.spark.reporting.figures import Figures
from penstock.spark.reporting.making import Report, report

__all__ = ["Figures", "Report", "report"]
