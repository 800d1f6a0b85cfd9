"""Writes a file of records as a table for ``python -m tools.fidelity``: a row a time or a peak of memory."""

from __future__ import annotations

import csv
import io
from pathlib import Path

from course_utils import evidence, files
from tools.fidelity.table import POINTS

COLUMNS = (*POINTS, "source_repo", "path", "commit", "date", "licence")

TRAINED = "batch={batch} mode=momentum size="
ROWS = {
    "matmul": ("call:mm", "sizes={size}x{size}x{size} timed=loop"),
    "add": ("call:add", "sizes={numbers} timed=loop"),
    "copy": ("call:copy", "sizes={numbers} timed=loop"),
    "launch": ("call:addu", "sizes=1 timed=loop"),
    "host_to_device": ("copy:h2d", "MiB={megabytes} non_blocking={non_blocking} source={source}"),
    "cifar_step": ("step:small_cnn", f"{TRAINED}32"),
    "cnn_step": ("step:wide_cnn", f"{TRAINED}32 channels_last={{channels_last}}"),
    "resnet50_step": ("step:resnet50", f"{TRAINED}224"),
    "resnet50_inference": ("step:resnet50", "batch={batch} size=224 mode=infer images=100"),
    "bert_base_step": ("step:bert_base", "batch={batch} size=128 mode=adamw fused=True"),
    "bert_large_step": ("step:bert_large", "batch={batch} size=128 mode=adamw fused=True"),
}
"""Workload and parameters in the table for each experiment that `tools.fidelity` can model."""

QUANTITIES = {"time": ("time", 1e3, "ms"), "peak memory": ("peak_memory", 1e-6, "MB")}


def write(records: Path, table: Path) -> tuple[int, list[str]]:
    """Write a record's results as CSV; return the number of rows, and the experiments without one."""
    results = evidence.read_records(records)
    rows = []
    for m in results:
        if m.experiment not in ROWS or m.quantity not in QUANTITIES:
            continue
        workload, params = ROWS[m.experiment]
        metric, factor, unit = QUANTITIES[m.quantity]
        if workload.startswith("call:") and metric != "time":
            continue  # an operator's memory is not modelled
        params = f"{params.format(**m.parameters)}; torch {m.torch}"
        dtype = m.parameters.get("precision", "fp32")
        what = (workload, params, m.machine, dtype, metric, f"{factor * m.median:.6g}", unit)
        rows.append((*what, "record", records.name, "", m.date, ""))
    text = io.StringIO(newline="")
    csv.writer(text).writerows([COLUMNS, *rows])
    files.write(table, text.getvalue())
    return len(rows), list(dict.fromkeys(m.experiment for m in results if m.experiment not in ROWS))
