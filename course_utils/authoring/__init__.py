"""Tools for those who write lessons: notebook form, generated cells and pages, solved variants.

They need the packages of the ``test`` extra (nbformat, nbclient, ruff). Learners never import them.
"""
