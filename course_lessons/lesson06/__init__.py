"""Lesson 06."""
