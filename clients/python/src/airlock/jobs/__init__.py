"""What is made of jobs: their events, ends, files, batches and dead letters."""
