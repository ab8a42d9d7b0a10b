"""Questions with answers that can be counted: asking them, reading what was answered, comparing two sets of answers."""
