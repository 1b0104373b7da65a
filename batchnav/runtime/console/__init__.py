"""Progress and announcements on a terminal."""
