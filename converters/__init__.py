"""Packing: any set of images into one file of any format (installed as ``fastdata.converters``)."""
