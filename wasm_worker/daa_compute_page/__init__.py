"""The page that a gateway of daa-compute serves to volunteers: the files below `site`, built.

There is no code here. A daemon serves the page of its own version only, as both hold the program
whose results must be the same to the bit.
"""
