"""What a person does to jobs and keys.

control   cancel, retry, reschedule, purge; release a key
audit     what people and programs did
deleting  delete a queue, and end what is found in it afterwards
"""
