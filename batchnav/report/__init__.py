"""What people read of runs and evaluations: pages, charts, tables, model cards."""
