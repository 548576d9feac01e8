"""The data source `penstock`: what `spark.read`, `spark.write` and their streams find under that name.

penstock_source  `ps.register`, and the class that Spark builds readers and writers from
options          an option that the source does not know is refused; the path of a lake
error_codes      how an error keeps its type on its way through Spark
"""
