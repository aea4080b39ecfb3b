"""What goes with what in an experiment: a table for each matter, with a row for each thing that it excludes.

Rows ask parts for what they can do, by flags that the base classes of parts declare and explain, and know no
part by its name: a new part sets its flags, and no table is edited.
"""
