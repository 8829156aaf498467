"""A torchvision transform, compiled: a plan, random draws, geometry and pixels for a whole batch at once."""

from fastdata.transforms.batch_op import batch_op
from fastdata.transforms.compile import compile_transform
from fastdata.transforms.draws import draw
from fastdata.transforms.geometry import plan_geometry
from fastdata.transforms.plan import Plan, Unsupported

__all__ = ["Plan", "Unsupported", "batch_op", "compile_transform", "draw", "plan_geometry"]
