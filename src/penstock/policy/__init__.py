"""Decisions that need neither the database nor a clock.

When to try again, when a cron is due, how much to claim, what may start next in a partition that has an owner.
Time and randomness are handed in, so that every decision can be repeated and tested.
"""

from penstock.policy.backoff import Backoff, Wait
from penstock.policy.claim_size import ClaimSize
from penstock.policy.cron import Schedule
from penstock.policy.roster import Roster, WaitingJob

__all__ = ["Backoff", "ClaimSize", "Roster", "Schedule", "Wait", "WaitingJob"]
