"""The commands for maintainers and instructors, one module each; `course_utils.cli` says what one has."""
