"""The judge: what every actor of a test wrote down, held against what the database says in the end.

history    events, appended by each process to one file
snapshot   where each job stands, read from the tables themselves
checker    the rules
"""
