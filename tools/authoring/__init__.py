"""Tools for those who write lessons: notebook form, generated cells and pages, solved variants.

They need the packages of the ``test`` extra (nbformat, nbclient, ruff). For learners only `catch_up` imports
them: headings and solutions, which need no more than nbformat.
"""
