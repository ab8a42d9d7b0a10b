"""Traffic beside a lane: requests that go on while a server is moved, what became of each, and whether it was right."""
