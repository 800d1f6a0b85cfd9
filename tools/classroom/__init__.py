"""For instructors: what a class handed in, and whether seats are ready."""
