"""Translation of the course: extracting texts, the gettext catalogues, and generating the editions."""
