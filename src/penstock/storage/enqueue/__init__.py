"""Writing jobs.

write     from the jobs of a call to ranges
receipts  finding out, after a lost answer, whether a call was written
"""
