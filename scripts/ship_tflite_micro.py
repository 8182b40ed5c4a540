"""Makes a small network of integers of 8 bits with TensorFlow, runs it in TensorFlow Lite Micro, and writes the same
network as ONNX, for crates/ship/tests/it/tiny.rs and docs/benchmarks/ship.md.

    pip install tensorflow-cpu tflite-micro onnx
    python scripts/ship_tflite_micro.py crates/ship/tests/models

The network is DS-CNN of MLPerf Tiny without its softmax, and with random weights. `words.onnx` has the
integers, scales and zero points of the .tflite file in pairs of QuantizeLinear and DequantizeLinear. `words.bin` has
inputs, each of 490 f32, and the results of TensorFlow Lite Micro, 12 f32, one pair after the other. Prints the sizes.
"""

import pathlib
import sys

import numpy as np
import onnx
import tensorflow as tf
from onnx import TensorProto, helper, numpy_helper
from tflite_micro.python.tflite_micro import runtime

CHANNELS, BLOCKS, CLASSES, INPUTS = 64, 4, 12, 8


def network():
    """Layers in TensorFlow's order of axes."""
    tf.keras.utils.set_random_seed(7)
    layers = tf.keras.layers
    x = inputs = tf.keras.Input((49, 10, 1), batch_size=1)
    bias = {"bias_initializer": tf.keras.initializers.RandomUniform(-0.2, 0.2)}
    x = layers.Conv2D(CHANNELS, (10, 4), strides=2, padding="same", activation="relu", **bias)(x)
    for _ in range(BLOCKS):
        x = layers.DepthwiseConv2D(3, padding="same", activation="relu", **bias)(x)
        x = layers.Conv2D(CHANNELS, 1, activation="relu", **bias)(x)
    x = layers.AveragePooling2D((25, 5))(x)
    x = layers.Dense(CLASSES, **bias)(layers.Flatten()(x))
    return tf.keras.Model(inputs, x)


def to_tflite(model, samples):
    converter = tf.lite.TFLiteConverter.from_keras_model(model)
    converter.optimizations = [tf.lite.Optimize.DEFAULT]
    converter.representative_dataset = lambda: ([sample[None]] for sample in samples)
    converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
    converter.inference_input_type = converter.inference_output_type = tf.int8
    return converter.convert()


def least_arena(content):
    """The smallest arena with which the interpreter starts."""
    low, high = 0, 1 << 20
    while high - low > 16:
        middle = (low + high) // 2
        try:
            runtime.Interpreter.from_bytes(content, arena_size=middle)
            high = middle
        except Exception:
            low = middle
    return high


class Graph:
    """Nodes and constants of an ONNX graph."""

    def __init__(self, tensors):
        self.nodes, self.constants, self.tensors = [], [], tensors

    def constant(self, name, array):
        self.constants.append(numpy_helper.from_array(np.ascontiguousarray(array), name))
        return name

    def add(self, op, inputs, output, **attributes):
        self.nodes.append(helper.make_node(op, inputs, [output], **attributes))
        return output

    def parameters(self, index, axis=None):
        """The names of a tensor's scale and zero point."""
        found = self.tensors[index]["quantization_parameters"]
        scale, zero = found["scales"].astype(np.float32), found["zero_points"].astype(np.int8)
        if axis is None:
            scale, zero = scale.reshape(()), zero.reshape(())
        return [self.constant(f"scale{index}", scale), self.constant(f"zero{index}", zero)]

    def rounded(self, x, index):
        """x through the integers of a tensor."""
        parameters = self.parameters(index)
        q = self.add("QuantizeLinear", [x, *parameters], f"q{index}")
        return self.add("DequantizeLinear", [q, *parameters], f"x{index}")

    def weight(self, index, array):
        """A weight whose first axis has the scales; one scale is repeated."""
        found = self.tensors[index]["quantization_parameters"]
        scale = np.broadcast_to(found["scales"].astype(np.float32), array.shape[:1])
        names = [self.constant(f"w{index}", array), self.constant(f"scale{index}", scale)]
        return self.add("DequantizeLinear", names, f"f{index}", axis=0), scale


def to_onnx(interpreter):
    details = {item["index"]: item for item in interpreter.get_tensor_details()}
    graph = Graph(details)
    names = {}
    first = interpreter.get_input_details()[0]["index"]
    x = graph.add("Reshape", ["x", graph.constant("shape", np.array([1, 1, 49, 10], np.int64))], "x_nchw")
    names[first] = graph.rounded(x, first)
    for op in interpreter._get_ops_details():
        kind, inputs, output = op["op_name"], op["inputs"], op["outputs"][0]
        x, name = names.get(inputs[0]), f"y{output}"
        if kind in ("CONV_2D", "DEPTHWISE_CONV_2D"):
            kernel, bias = (interpreter.get_tensor(k) for k in inputs[1:3])
            depthwise = kind == "DEPTHWISE_CONV_2D"
            kernel = kernel.transpose(3, 0, 1, 2) if depthwise else kernel.transpose(0, 3, 1, 2)
            weight, scale = graph.weight(inputs[1], kernel)
            shape = details[inputs[0]]["shape"][1:3]
            stride = 2 if shape[0] == 49 else 1
            pads = [max((-(-n // stride) - 1) * stride + k - n, 0) for n, k in zip(shape, kernel.shape[2:])]
            pads = [pads[0] // 2, pads[1] // 2, pads[0] - pads[0] // 2, pads[1] - pads[1] // 2]
            of_input = details[inputs[0]]["quantization_parameters"]["scales"][0]
            bias = graph.constant(f"b{output}", (bias * (of_input * scale)).astype(np.float32))
            x = graph.add("Conv", [x, weight, bias], name, strides=[stride] * 2, pads=[int(p) for p in pads],
                          group=kernel.shape[0] if depthwise else 1)
            x = graph.add("Relu", [x], name + "r")
        elif kind == "AVERAGE_POOL_2D":
            x = graph.add("GlobalAveragePool", [x], name)
        elif kind == "RESHAPE":
            names[output] = x  # a fully connected layer takes the elements of any shape
            continue
        elif kind == "FULLY_CONNECTED":
            kernel, bias = (interpreter.get_tensor(k) for k in inputs[1:3])
            weight, scale = graph.weight(inputs[1], kernel)
            of_input = details[inputs[0]]["quantization_parameters"]["scales"][0]
            bias = graph.constant(f"b{output}", (bias * (of_input * scale)).astype(np.float32))
            x = graph.add("Gemm", [graph.add("Flatten", [x], name + "f"), weight, bias], name, transB=1)
        elif kind == "DELEGATE":
            continue
        else:
            sys.exit(f"{kind} is not expected")
        names[output] = graph.rounded(x, output)
    last = interpreter.get_output_details()[0]["index"]
    graph.add("Identity", [names[last]], "y")
    infos = [helper.make_tensor_value_info(*of) for of in
             [("x", TensorProto.FLOAT, [1, 490]), ("y", TensorProto.FLOAT, [1, CLASSES])]]
    made = helper.make_graph(graph.nodes, "words", infos[:1], infos[1:], graph.constants)
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    onnx.checker.check_model(model)
    return model


def main():
    folder = pathlib.Path(sys.argv[1])
    samples = np.random.default_rng(7).normal(size=(64, 49, 10, 1)).astype(np.float32)
    content = to_tflite(network(), samples)
    plain = tf.lite.experimental.OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    lite = tf.lite.Interpreter(model_content=content, experimental_op_resolver_type=plain)
    lite.allocate_tensors()
    onnx.save(to_onnx(lite), folder / "words.onnx")
    micro = runtime.Interpreter.from_bytes(content)
    scale, zero = (micro.get_input_details(0)["quantization_parameters"][k] for k in ("scales", "zero_points"))
    of_output = micro.get_output_details(0)["quantization_parameters"]
    numbers = []
    for sample in samples[:INPUTS]:
        q = np.clip(np.round(sample[None] / scale) + zero, -128, 127).astype(np.int8)
        micro.set_input(q, 0)
        micro.invoke()
        y = (micro.get_output(0).astype(np.float32) - of_output["zero_points"]) * of_output["scales"]
        numbers += [sample.ravel(), y.ravel()]
    np.concatenate(numbers).astype("<f4").tofile(folder / "words.bin")
    print(f"{len(content)} bytes of .tflite, an arena of {least_arena(content)} bytes")
    print(f"a step of a result is {of_output['scales'][0]}")
    micro.print_allocations()


if __name__ == "__main__":
    main()
