"""Lesson 01."""
