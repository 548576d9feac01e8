"""A Spark session on this machine, for those who have none.

start              `ps.session`: checks Java, starts Spark once a process
stderr_filter      leaves Spark's greetings, and the tracebacks of processes that were hung up on, out of stderr
log4j2.properties  what Spark itself may log
"""
