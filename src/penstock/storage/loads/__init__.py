"""Loads from Spark, on one database.

loads  by their names: how far they are; paused, resumed and cancelled as a whole
stage  jobs in bulk, where nobody can claim them until they are published
"""
