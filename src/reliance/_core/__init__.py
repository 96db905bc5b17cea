"""What everything stands on: arrays of any backend, and streams of random numbers."""
