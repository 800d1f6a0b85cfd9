"""The lessons' content, a folder a lesson: its exercises, its drawings, its own machinery."""
