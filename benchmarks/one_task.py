"""One task in a fresh process, for `measure.peak_memory`: ``python -m benchmarks.one_task NAME ROWS COLUMNS``."""

import json
import sys
import warnings

from benchmarks.cases import TASKS
from benchmarks.measure import in_fresh_process

if __name__ == "__main__":
    warnings.simplefilter("ignore")
    name, n_rows, n_columns = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    print(json.dumps(in_fresh_process(TASKS[name](n_rows, n_columns))))
