"""What makes and keeps the course: authoring, records, claims' pages, classroom. Not in the wheel."""
