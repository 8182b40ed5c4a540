"""The operators that the fuzzer of files draws, from the schemas of the packages onnx and onnxruntime:

    python scripts/onnx_fuzz_operators.py > tools/fuzz/src/bin/taper-fuzz-files/operators.tsv
"""

import onnx.defs
from onnxruntime.capi.onnxruntime_pybind11_state import get_all_operator_schema

TYPES = {"FLOAT": "f", "INT": "i", "STRING": "s", "TENSOR": "t", "GRAPH": "g", "FLOATS": "F", "INTS": "I", "STRINGS": "S"}


def letter(types):
    """The kind of an input: f floats, i integers, b booleans, s texts, * several of these."""
    inner = {kind.removeprefix("tensor(").removesuffix(")") for kind in types}
    if inner <= {"int64", "int32"}:
        return "i"
    if inner == {"bool"}:
        return "b"
    if inner == {"string"}:
        return "s"
    if inner <= {"float", "double", "float16", "bfloat16"}:
        return "f"
    if inner <= {"int8", "uint8", "int16", "uint16", "uint4", "int4", "uint2", "int2"}:
        return "q"
    return "*"


newest = {}
own = [schema for schema in get_all_operator_schema() if schema.domain == "com.microsoft"]
for schema in [*onnx.defs.get_all_schemas_with_history(), *own]:
    key = (schema.domain, schema.name)
    if key not in newest or newest[key].since_version < schema.since_version:
        newest[key] = schema
print(f"# Made by scripts/onnx_fuzz_operators.py from onnx {onnx.__version__}: domain, name, least number of inputs,")
print("# kinds of inputs (+ for more of the last), number of outputs, attributes with their types.")
for (domain, name), schema in sorted(newest.items()):
    kinds = ""
    for value in schema.inputs:
        kinds += letter(value.types)
        if value.option.name == "Variadic":
            kinds += "+"
    attributes = [
        f"{a.name}:{TYPES[a.type.name]}" for a in sorted(schema.attributes.values(), key=lambda a: a.name) if a.type.name in TYPES
    ]
    outputs = min(schema.max_output, 4)
    print("\t".join([domain, name, str(schema.min_input), kinds or "-", str(outputs), ",".join(attributes) or "-"]))
