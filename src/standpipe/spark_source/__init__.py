"""`spark.read.format("standpipe")`: a served table as a batch DataFrame, read from the nodes
(docs/spark.md).

    spark.read.format("standpipe").option("nodes", "node1:8088,node2:8088").load("SCORES")

It is a Python data source, so it needs neither Kafka nor access to the JVM, and works under Spark
Connect, too. Design: `spark/DESIGN.md`.
"""
