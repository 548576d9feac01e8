"""`ps.advise`: what another number of partitions would do for a queue, from the keys its jobs really have.

A partition has one owner at a time, so the work is done when the fullest partition's is. The speed-up of a number of
partitions is therefore all jobs by those of the fullest; its balance is how much of the ideal that is. A key is never
divided: however many partitions there are, the hottest key bounds the speed-up.

advise       the call: reads the keys, counts, advises
key_weights  jobs by partition for each number of partitions, counted by Spark
advice       what follows from that, in a sentence
advice_page  the same as a page
"""
