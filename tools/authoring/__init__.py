"""Tools for those who write lessons: notebook form, generated cells and pages, the site, solved variants."""
