"""Decisions that need neither the database nor a clock: when to try again, when a cron is due, how much to claim.

Time and randomness are handed in, so that every decision can be repeated and tested.
"""

from penstock.policy.backoff import Backoff, Wait
from penstock.policy.batch import BatchSize
from penstock.policy.cron import Schedule

__all__ = ["Backoff", "BatchSize", "Schedule", "Wait"]
