"""ProcTHOR houses."""
