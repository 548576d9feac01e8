"""What a person does to jobs and keys.

control  cancel, retry, reschedule, purge; release a key
"""
