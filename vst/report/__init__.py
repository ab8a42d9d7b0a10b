"""Pages that people look at, drawn from the files of a run or a sweep alone; needs neither torch nor vLLM."""
