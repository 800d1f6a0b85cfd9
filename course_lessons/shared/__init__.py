"""Modules that two or more lessons use."""
