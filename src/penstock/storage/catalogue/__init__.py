"""The catalogue: what was declared.

queues   queues, their partitions and rules, and the tasks that were announced
crons    cron entries
resize   another number of partitions for a queue in use
roles    database roles, and what the owner lets them do
access_tokens    by what programs come in that have no password of the database
"""
