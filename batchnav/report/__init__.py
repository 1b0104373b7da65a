"""Reports on training runs and evaluations: HTML pages, learning curves, terminal tables, model cards, result rows."""
