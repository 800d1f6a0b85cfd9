"""The documents that set the subject, and what their claims compare."""

from __future__ import annotations

GUIDE = "PyTorch学习指南 (A guide to learning PyTorch)"
CHAPTER = "第 7 章:GPU 训练与性能优化 (Chapter 7: Training on a GPU, and tuning its speed)"
METHODS = "深度学习 GPU 两种使用方法 (Two ways to use a GPU for deep learning)"
CORE = (
    "PyTorch GPU加速训练核心技术指南 (A guide to the core techniques of GPU training with PyTorch)"
)
"""The titles of the documents."""

CPU, GPU = {"device": "cpu"}, {"device": "accelerator"}
FULL, HALF = {"precision": ("fp32", "tf32")}, {"precision": ("fp16", "bf16")}
"""Sides of a comparison: the parameters of records."""
