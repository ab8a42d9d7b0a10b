"""Faults that lane L6 makes in the middle of a push, each in a module of its own, and what must hold after each.

A fault is a context: inside it one push is made, which it breaks. ``Shot.at`` says when it struck.
"""
