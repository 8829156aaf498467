"""Stores: random access to the samples of packs and folders, as spans of files."""
