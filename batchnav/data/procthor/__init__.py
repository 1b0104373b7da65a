"""ProcTHOR houses: reading, appearance, import as mesh files."""
