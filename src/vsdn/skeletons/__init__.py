"""Skeletons: joint positions from the angles of a motion, drawn as a strip of frames or as an animation."""

from vsdn.skeletons.animation import ANIMATIONS, draw_animation
from vsdn.skeletons.notes import unseen_before
from vsdn.skeletons.posture import joints
from vsdn.skeletons.shots import FAR
from vsdn.skeletons.strip import STRIPS, draw_strip

__all__ = ["ANIMATIONS", "FAR", "STRIPS", "draw_animation", "draw_strip", "joints", "unseen_before"]
