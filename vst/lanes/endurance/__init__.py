"""Lane L6: cycles under load, the trend of the server's memory, faults in the middle of a push, and the way back."""
