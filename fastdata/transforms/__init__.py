"""A torchvision transform, compiled: a plan, random draws, and geometry for a whole batch at once."""

from fastdata.transforms.compile import compile_transform
from fastdata.transforms.draws import draw
from fastdata.transforms.geometry import plan_geometry
from fastdata.transforms.plan import Plan, Unsupported

__all__ = ["Plan", "Unsupported", "compile_transform", "draw", "plan_geometry"]
