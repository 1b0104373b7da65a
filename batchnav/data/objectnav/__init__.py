"""ObjectNav data: categories, view points, episodes and their files."""
