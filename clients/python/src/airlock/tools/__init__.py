"""Functions of this program that the code of a job can call."""
