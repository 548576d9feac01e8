"""What pages of a job and of a queue draw.

life       where a job is between being enqueued and its end
attempts   its attempts, one after the other, over the time that it has been there
family     the jobs it comes after, and those that come after it
over_time  what happened in a queue, over an hour, six or a day
"""
