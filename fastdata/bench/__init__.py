"""Measurements that anybody can rerun: decode backends over the same bytes, loaders over the same images."""
