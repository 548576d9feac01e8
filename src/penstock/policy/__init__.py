"""Decisions that need neither the database nor a clock.

backoff       how long a failed job waits before its next attempt
cron          when a cron is due
claim_size    how many jobs a worker claims at once
claim_order   in which order a claim tries partitions
look_pace     how soon a worker looks for jobs again
batch_rows    how many jobs a batch handler of Spark is given at once
batch_size    how many one in a worker is, and how long they wait for each other
histogram     how many values fell between which bounds, and percentiles read off it
slot_shares   who may claim for a worker's slots, where it serves several databases
rate          how often jobs may start
permits       how many jobs may run in each partition, where the whole queue has a limit
tokens        how many jobs may start in each partition, where the whole queue has a rate
judgements    from when on something is wrong
roster        what may start next in one owned partition; around it:
  waiting_job   what it has to know of a job
  job_sequence  the waiting jobs of one key, priority and key map, in order
  key           what is known of one key
  ready_keys    the keys that could start a job, in the order in which they do
  key_holds     what keeps a key from going on
  key_maps      which keys wait for an older key map
  allowance     how many jobs its limit and rates let start

Time and randomness are handed in, so that every decision can be repeated and tested.
"""

from penstock.policy.backoff import Backoff, Wait
from penstock.policy.claim_size import ClaimSize
from penstock.policy.cron import Schedule
from penstock.policy.roster import Roster, WaitingJob

__all__ = ["Backoff", "ClaimSize", "Roster", "Schedule", "Wait", "WaitingJob"]
