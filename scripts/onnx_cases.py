"""Writes the test cases of single operators that the installed package onnx generates:

    python scripts/onnx_cases.py FOLDER

`onnx.backend.test.cmd_tools generate-data` writes them too, but in some versions only those of small graphs.
"""

import sys

import onnx.backend.test.case.model as models
import onnx.backend.test.case.node as nodes
from onnx.backend.test import cmd_tools

graphs = models.collect_testcases
models.collect_testcases = lambda: [*graphs(), *nodes.collect_testcases()]
sys.argv = [sys.argv[0], "generate-data", "--output", sys.argv[1]]
cmd_tools.main()
