"""What pages of a job draw beside charts.

life      where a job is between being enqueued and its end
attempts  its attempts, one after the other, over the time that it has been there
family    the jobs it comes after, and those that come after it
"""
