"""Small models of single operators with ONNX Runtime's answers, for `crates/onnx/tests/it/runtime.rs`:

    python scripts/onnx_runtime_fixtures.py [CASE]

Needs numpy, onnx, onnxruntime and safetensors. Writes crates/onnx/tests/models/runtime_cases.safetensors: for each
case the file CASE/model as bytes, its inputs CASE/in/NAME, its outputs CASE/out/NAME and CASE/tolerance. With the
beginning of a case's name it only prints these cases. ONNX Runtime's CPU computes some operators of its own not at all
or differently than it documents them: such a case has the answers of other nodes, which are written out beside it.
"""

import pathlib
import sys

import numpy as np
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from safetensors.numpy import save_file

OUT = pathlib.Path(__file__).parent.parent / "crates/onnx/tests/models/runtime_cases.safetensors"
# Without VNNI, ONNX Runtime saturates sums of two products of u8 and i8; weights up to here are safe.
SAFE = 63
rng = np.random.default_rng(52)
tensors = {}
only = sys.argv[1] if len(sys.argv) > 1 else None


def floats(*shape, scale=1.0):
    return (rng.standard_normal(shape) * scale).astype(np.float32)


def integers(low, high, shape, dtype):
    return rng.integers(low, high, shape).astype(dtype)


def model_of(name, nodes, inputs, outputs, weights, opset):
    info = [helper.make_tensor_value_info(k, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape) for k, v in inputs.items()]
    made = [helper.make_empty_tensor_value_info(k) for k in outputs]
    constants = [v if isinstance(v, TensorProto) else numpy_helper.from_array(np.asarray(v), k) for k, v in (weights or {}).items()]
    graph = helper.make_graph(nodes, name, info, made, constants)
    domains = [("", opset), ("com.microsoft", 1), ("ai.onnx.ml", 5)]
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid(*pair) for pair in domains], ir_version=10)
    return model.SerializeToString()


def case(name, nodes, inputs, outputs, weights=None, opset=20, tolerance=1e-5, stand_in=None):
    """Runs the nodes, and stores the model with its inputs and outputs. `stand_in` has the nodes that are run in their
    place, and their weights."""
    if only and not name.startswith(only):
        return
    file = model_of(name, nodes, inputs, outputs, weights, opset)
    run = model_of(name, stand_in[0], inputs, outputs, stand_in[1], opset) if stand_in else file
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(run, options, providers=["CPUExecutionProvider"])
    results = session.run(list(outputs), inputs)
    if only:
        print(name, [(key, result.shape, result) for key, result in zip(outputs, results)])
    tensors[f"{name}/model"] = np.frombuffer(file, np.uint8)
    tensors[f"{name}/tolerance"] = np.array([tolerance], np.float32)
    tensors.update({f"{name}/in/{key}": np.array(value, order="C") for key, value in inputs.items()})
    tensors.update({f"{name}/out/{key}": np.array(value, order="C") for key, value in zip(outputs, results)})


def node(op, inputs, outputs, domain="", **attributes):
    return helper.make_node(op, inputs.split(","), outputs.split(","), domain=domain, **attributes)


def ms(op, inputs, outputs, **attributes):
    return node(op, inputs, outputs, "com.microsoft", **attributes)


def resizes():
    """Sizes and places are computed in f32."""
    line = floats(1, 1, 1, 10)
    for name, size, scale in [("7", 10, 0.7), ("30", 100, 0.3), ("37", 14, 37 / 14), ("706", 224, 706 / 224), ("35", 50, 0.7)]:
        for mode in ["nearest", "linear"]:
            x = np.arange(size, dtype=np.float32).reshape(1, 1, 1, size)
            scales = {"s": np.array([1, 1, 1, scale], np.float32)}
            case(f"resize_{mode}_{size}_to_{name}", [node("Resize", "x,,s", "y", mode=mode)], {"x": x}, ["y"], scales)
    for places in ["half_pixel", "pytorch_half_pixel", "asymmetric", "tf_half_pixel_for_nn", "half_pixel_symmetric"]:
        for rounding in ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"]:
            resize = node("Resize", "x,,s", "y", coordinate_transformation_mode=places, nearest_mode=rounding)
            scales = {"s": np.array([1, 1, 1, 1.37], np.float32)}
            case(f"resize_{places}_{rounding}", [resize], {"x": np.arange(30, dtype=np.float32).reshape(1, 1, 1, 30)}, ["y"], scales)
        resize = node("Resize", "x,,,n", "y", mode="linear", coordinate_transformation_mode=places)
        case(f"resize_{places}_by_sizes", [resize], {"x": line}, ["y"], {"n": np.array([1, 1, 1, 23])})
    resize = node("Resize", "x,,,n", "y", mode="linear", coordinate_transformation_mode="align_corners")
    case("resize_align_corners_by_sizes", [resize], {"x": floats(1, 1, 5, 14)}, ["y"], {"n": np.array([1, 1, 9, 37])})
    resize = node("Resize", "x,,,n", "y", mode="cubic", coordinate_transformation_mode="pytorch_half_pixel")
    case("resize_cubic_to_one", [resize], {"x": line}, ["y"], {"n": np.array([1, 1, 1, 1])})
    for policy in ["not_larger", "not_smaller"]:
        resize = node("Resize", "x,,,n", "y", mode="nearest", keep_aspect_ratio_policy=policy, axes=[2, 3])
        case(f"resize_{policy}", [resize], {"x": floats(1, 1, 7, 9)}, ["y"], {"n": np.array([5, 11])})
    for kind in [np.uint8, np.int8, np.int32]:
        x = integers(-100 if kind != np.uint8 else 0, 100, (1, 1, 4, 5), kind)
        scales = {"s": np.array([1, 1, 1.7, 2.3], np.float32)}
        case(f"resize_{np.dtype(kind)}", [node("Resize", "x,,s", "y", mode="linear")], {"x": x}, ["y"], scales)
    x = integers(0, 255, (1, 1, 9, 9), np.uint8)
    resize = node("Resize", "x,,s", "y", mode="linear", antialias=1)
    case("resize_antialias_uint8", [resize], {"x": x}, ["y"], {"s": np.array([1, 1, 0.5, 0.5], np.float32)}, tolerance=1.001)
    for scale in [0.6, 1.7]:
        scales = {"s": np.array([1, 1, 1, scale], np.float32)}
        case(f"resize_10_{scale}", [node("Resize", "x,s", "y")], {"x": line}, ["y"], scales, opset=10)


def windows():
    x, weight = floats(1, 2, 3, 3), {"w": floats(2, 2, 3, 3)}
    for pad in ["NOTSET", "SAME_UPPER", "SAME_LOWER"]:
        conv = node("ConvTranspose", "x,w", "y", strides=[2, 2], output_shape=[6, 6], auto_pad=pad)
        case(f"conv_transpose_{pad}", [conv], {"x": x}, ["y"], weight)
    conv = node("ConvTranspose", "x,w", "y", strides=[2], output_shape=[8])
    case("conv_transpose_1d", [conv], {"x": floats(1, 2, 4)}, ["y"], {"w": floats(2, 3, 3)})
    conv = node("ConvTranspose", "x,w", "y", strides=[2, 3], dilations=[2, 3], output_shape=[8, 9])
    case("conv_transpose_dilated", [conv], {"x": floats(1, 2, 3, 3)}, ["y"], weight)
    image = floats(2, 3, 7, 9)
    boxes = {"r": np.array([[0, 0, 8, 6], [1.5, 2, 4, 6.5], [-2, -3, 12, 10], [5, 4, 5.1, 4.1]], np.float32)}
    boxes["i"] = np.array([0, 1, 1, 0])
    for mode in ["avg", "max"]:
        # ONNX Runtime takes other maxima of several samples than ONNX does.
        for ratio in [0, 2] if mode == "avg" else [1]:
            for places in ["half_pixel", "output_half_pixel"]:
                roi = node("RoiAlign", "x,r,i", "y", mode=mode, sampling_ratio=ratio, output_height=2, output_width=3,
                           spatial_scale=0.9, coordinate_transformation_mode=places)
                case(f"roi_align_{mode}_{ratio}_{places}", [roi], {"x": image, **boxes}, ["y"])


def control():
    one = lambda name, kind, shape: helper.make_tensor_value_info(name, kind, shape)
    constant = node("Constant", "", "v", value=numpy_helper.from_array(np.array([1, 2])))
    constant.input.clear()
    for name, shape in [("known", [2]), ("symbolic", ["n"])]:
        body = helper.make_graph(
            [node("Identity", "go", "on"), constant], "body",
            [one("i", TensorProto.INT64, []), one("go", TensorProto.BOOL, [])],
            [one("on", TensorProto.BOOL, []), one("v", TensorProto.INT64, shape)])
        nodes = [node("Loop", "count,", "all", body=body), node("ReduceSum", "all,axis", "sum", keepdims=0)]
        case(f"loop_without_iterations_{name}", nodes, {"count": np.array(0)}, ["all", "sum"], {"axis": np.array([0])})
    case("range_away", [node("Range", "a,b,c", "y")], {k: np.array(v, np.float32) for k, v in [("a", 3), ("b", 5), ("c", -1)]}, ["y"])
    cut = {"a": np.array([-10]), "b": np.array([-20]), "c": np.array([0]), "d": np.array([-1])}
    case("slice_before_the_start", [node("Slice", "x,a,b,c,d", "y")], {"x": floats(5)}, ["y"], cut)
    case("slice_before_the_start_on_the_host", [node("Shape", "x", "s"), node("Slice", "s,a,b,c,d", "y")], {"x": floats(5, 2, 1)}, ["y"], cut)
    case("dynamic_quantize_zeros", [node("DynamicQuantizeLinear", "x", "y,s,z")], {"x": np.zeros(3, np.float32)}, ["y", "s", "z"])


def trees():
    """A difference of 1e-12 decides, and weights have more digits than f32."""
    for kind in [np.float64, np.float32]:
        tensor = lambda name, values: numpy_helper.from_array(np.array(values, kind), name)
        for aggregate in [0, 1, 2, 3]:
            if kind == np.float32 and aggregate != 1:
                continue
            ensemble = node(
                "TreeEnsemble", "x", "y", "ai.onnx.ml", n_targets=2, aggregate_function=aggregate, post_transform=0,
                tree_roots=[0, 2], nodes_featureids=[0, 1, 1], nodes_splits=tensor("s", [1 + 1e-12, -0.5, 0.25]),
                nodes_modes=numpy_helper.from_array(np.array([0, 1, 0], np.uint8), "m"), nodes_truenodeids=[1, 1, 3],
                nodes_trueleafs=[0, 1, 1], nodes_falsenodeids=[0, 2, 4], nodes_falseleafs=[1, 1, 1],
                leaf_targetids=[0, 1, 1, 0, 1], leaf_weights=tensor("w", [0.1, 0.2, 0.3, 1 / 3, 1e-9]))
            x = np.array([[1 + 1e-12, -1], [1 + 2e-12, 1], [0.5, 0.25], [0, -0.5]], kind)
            name = f"trees_{np.dtype(kind)}_{aggregate}"
            case(name, [ensemble], {"x": x}, ["y"], tolerance=1e-14 if kind == np.float64 else 1e-6)


def quantized_lstm():
    for steps, batch in [(3, 1), (40, 1), (20, 3)]:
        size, width, d = 6, 4, 2
        weights = {
            "w": integers(-SAFE, SAFE, (d, width, 4 * size), np.int8), "r": integers(-SAFE, SAFE, (d, size, 4 * size), np.int8),
            "b": floats(d, 8 * size, scale=0.1), "ws": np.full(d, 0.01, np.float32), "wz": np.zeros(d, np.int8),
            "rs": np.full(d, 0.02, np.float32), "rz": np.zeros(d, np.int8)}
        lstm = ms("DynamicQuantizeLSTM", "x,w,r,b,,,,,ws,wz,rs,rz", "y,h,c", hidden_size=size, direction="bidirectional")
        case(f"quantized_lstm_{steps}_{batch}", [lstm], {"x": floats(steps, batch, width)}, ["y", "h", "c"], weights, tolerance=2e-3)


def few_bits():
    for bits, block, depth, kind in [(4, 16, 32, "none"), (4, 32, 48, "packed"), (4, 16, 48, "floats"), (8, 16, 32, "none"), (2, 32, 64, "none"), (8, 32, 64, "packed")]:
        rows, blocks = 5, -(-depth // block)
        weights = {"b": integers(0, 255, (rows, blocks, block * bits // 8), np.uint8), "s": floats(rows * blocks, scale=0.1)}
        names = "x,b,s"
        if kind == "packed":
            weights["z"] = integers(0, 255, (rows * -(-blocks * bits // 8),), np.uint8)
            names += ",z"
        if kind == "floats":
            weights["z"] = floats(rows * blocks, scale=4)
            names += ",z"
        product = ms("MatMulNBits", names, "y", K=depth, N=rows, bits=bits, block_size=block)
        try:
            case(f"n_bits_{bits}_{block}_{depth}_{kind}", [product], {"x": floats(2, 3, depth)}, ["y"], weights, tolerance=1e-4)
        except Exception as error:
            print(f"n_bits_{bits}_{block}_{depth}_{kind}: {str(error)[:160]}")


def integer_products():
    a, b = integers(0, 255, (3, 4), np.uint8), integers(-SAFE, SAFE, (4, 5), np.int8)
    scales = {"as": np.float32(0.1), "bs": floats(5), "az": np.uint8(7), "bz": integers(-9, 9, 5, np.int8), "bias": floats(5)}
    case("matmul_integer_to_float", [ms("MatMulIntegerToFloat", "a,b,as,bs,az,bz,bias", "y")], {"a": a, "b": b}, ["y"], scales, tolerance=1e-4)
    del scales["as"], scales["az"]
    case("dynamic_quantize_matmul", [ms("DynamicQuantizeMatMul", "x,b,bs,bz,bias", "y")], {"x": floats(3, 4), "b": b}, ["y"], scales, tolerance=1e-4)
    scales = {"as": np.float32(0.1), "az": np.uint8(7), "bs": np.float32(0.02), "bz": np.int8(3), "c": integers(-900, 900, 5, np.int32)}
    case("qgemm_floats", [ms("QGemm", "a,as,az,b,bs,bz,c", "y")], {"a": a, "b": b}, ["y"], scales, tolerance=1e-4)
    scales |= {"ys": np.float32(0.5), "yz": np.uint8(100)}
    case("qgemm", [ms("QGemm", "a,as,az,b,bs,bz,c,ys,yz", "y", transB=1)], {"a": a, "b": np.ascontiguousarray(b.T)}, ["y"], scales)
    scales = {"xs": np.float32(0.05), "xz": np.uint8(120), "zs": np.float32(0.03), "zz": np.uint8(90), "ys": np.float32(0.06), "yz": np.uint8(110)}
    x, z = integers(0, 255, (2, 3, 4, 4), np.uint8), integers(0, 255, (2, 3, 4, 4), np.uint8)
    for op in ["QLinearAdd", "QLinearMul"]:
        case(op.lower(), [ms(op, "x,xs,xz,z,zs,zz,ys,yz", "y")], {"x": x, "z": z}, ["y"], scales, tolerance=1.001)
    for op, attributes in [("QLinearSigmoid", {}), ("QLinearLeakyRelu", {"alpha": 0.2}), ("QLinearGlobalAveragePool", {}),
                           ("QLinearAveragePool", {"kernel_shape": [2, 2], "strides": [2, 2]}), ("QLinearSoftmax", {"axis": -1, "opset": 13})]:
        own = dict(scales)
        if op in ["QLinearSigmoid", "QLinearSoftmax"]:
            own |= {"ys": np.float32(1 / 256), "yz": np.uint8(0)}
        case(op.lower(), [ms(op, "x,xs,xz,ys,yz", "y", **attributes)], {"x": x}, ["y"], own, tolerance=1.001)
    case("qlinearconcat", [ms("QLinearConcat", "ys,yz,x,xs,xz,z,zs,zz", "y", axis=1)], {"x": x, "z": z}, ["y"], scales, tolerance=1.001)
    choice = {"c": integers(0, 2, (2, 3, 4, 4), bool)}
    case("qlinearwhere", [ms("QLinearWhere", "c,x,xs,xz,z,zs,zz,ys,yz", "y")], {"x": x, "z": z, **choice}, ["y"], scales, tolerance=1.001)


def attentions():
    n, s, h, size = 2, 5, 3, 4
    x, width = floats(n, s, 6), h * size
    weights = {"w": floats(6, 3 * width), "b": floats(3 * width)}
    lengths, raw = np.array([3, 5], np.int32), np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], np.int32)
    for name, inputs, more, attributes in [
        ("plain", "x,w,b", {}, {}), ("causal", "x,w,b", {}, {"unidirectional": 1}), ("lengths", "x,w,b,m", {"m": lengths}, {}),
        ("raw_mask", "x,w,b,m", {"m": raw}, {}), ("raw_causal", "x,w,b,m", {"m": raw}, {"unidirectional": 1}),
        ("bias", "x,w,b,,,a", {"a": floats(n, h, s, s)}, {"scale": 0.7}),
    ]:
        case(f"attention_{name}", [ms("Attention", inputs, "y", num_heads=h, **attributes)], {"x": x, **more}, ["y"], weights, tolerance=1e-4)
    past = floats(2, n, h, 3, size)
    case("attention_past", [ms("Attention", "x,w,b,,p", "y,present", num_heads=h, unidirectional=1)], {"x": x, "p": past}, ["y", "present"], weights, tolerance=1e-4)
    sizes = ms("Attention", "x,w,b", "y", num_heads=h, qkv_hidden_sizes=[6, 6, 9])
    case("attention_sizes", [sizes], {"x": x}, ["y"], {"w": floats(6, 21), "b": floats(21)}, tolerance=1e-4)

    q, k, v = floats(n, s, width), floats(n, 7, width), floats(n, 7, width)
    mask = np.array([[1] * 4 + [0] * 3, [1] * 7], np.int32)
    case("multi_head_cross", [ms("MultiHeadAttention", "q,k,v", "y", num_heads=h)], {"q": q, "k": k, "v": v}, ["y"], tolerance=1e-4)
    case("multi_head_bias", [ms("MultiHeadAttention", "q,k,v,b", "y", num_heads=h)], {"q": q, "k": k, "v": v}, ["y"], {"b": floats(3 * width)}, tolerance=1e-4)
    case("multi_head_mask", [ms("MultiHeadAttention", "q,k,v,,m", "y", num_heads=h)], {"q": q, "k": k, "v": v, "m": mask}, ["y"], tolerance=1e-4)
    share = ms("MultiHeadAttention", "q,k,v,,,a", "y", num_heads=h, scale=0.3)
    case("multi_head_share", [share], {"q": q, "k": k, "v": v, "a": floats(1, h, s, 7)}, ["y"], tolerance=1e-4)
    case("multi_head_causal", [ms("MultiHeadAttention", "q,k,v", "y", num_heads=h, unidirectional=1)], {"q": q, "k": k[:, :5], "v": v[:, :5]}, ["y"], tolerance=1e-4)
    heads = {"q": q, "k": floats(n, h, 7, size), "v": floats(n, h, 7, size)}
    case("multi_head_by_head", [ms("MultiHeadAttention", "q,k,v", "y", num_heads=h)], heads, ["y"], tolerance=1e-4)
    cache = {"q": q, "k": q + 1, "v": q - 1, "pk": floats(n, h, 3, size), "pv": floats(n, h, 3, size)}
    step = ms("MultiHeadAttention", "q,k,v,,,,pk,pv", "y,k2,v2", num_heads=h)
    case("multi_head_past", [step], cache, ["y", "k2", "v2"], tolerance=1e-4)

    angles = floats(16, size)
    tables = {"cos": np.cos(angles), "sin": np.sin(angles)}
    for interleaved in [0, 1]:
        turn = ms("RotaryEmbedding", "x,p,cos,sin", "y", interleaved=interleaved)
        case(f"rotary_{interleaved}", [turn], {"x": floats(n, h, s, 8), "p": integers(0, 16, (n, s), np.int64)}, ["y"], tables)
    turn = ms("RotaryEmbedding", "x,p,cos,sin", "y")
    case("rotary_flat", [turn], {"x": floats(n, s, 24), "p": np.array([3])}, ["y"], tables)
    turn = ms("RotaryEmbedding", "x,p,cos,sin", "y", rotary_embedding_dim=8, num_heads=2)
    case("rotary_part", [turn], {"x": floats(n, s, 24), "p": np.array([3])}, ["y"], tables)

    h, g, size = 4, 2, 16
    angles = floats(16, size // 2)
    tables = {"cos": np.cos(angles), "sin": np.sin(angles)}
    for name, batch, steps, past, buffer, lengths, attributes in [
        ("prompt", 1, 5, 0, 0, [4], {}), ("prompt_rotary", 1, 5, 0, 0, [4], {"do_rotary": 1}),
        ("prompt_buffer", 1, 5, 0, 9, [4], {"do_rotary": 1}), ("step", 1, 1, 4, 4, [4], {"do_rotary": 1}),
        ("step_buffer", 1, 1, 4, 9, [4], {"do_rotary": 1}), ("steps_of_two", 2, 1, 6, 6, [3, 6], {"do_rotary": 1}),
        ("two_of_a_buffer", 2, 1, 6, 12, [3, 6], {"do_rotary": 1, "rotary_interleaved": 1}), ("window", 1, 6, 0, 0, [5], {"local_window_size": 3}),
        ("window_step", 1, 1, 6, 6, [6], {"local_window_size": 3}), ("cap", 1, 5, 0, 0, [4], {"softcap": 2.0}),
        ("smooth", 1, 5, 0, 0, [4], {"smooth_softmax": 1}), ("scale", 1, 5, 0, 0, [4], {"scale": 0.2}), ("chunk", 1, 3, 4, 4, [6], {"do_rotary": 1}),
        ("packed", 1, 5, 0, 0, [4], {"do_rotary": 1}),
    ]:
        total = steps + past
        inputs = {"q": floats(batch, steps, h * size), "k": floats(batch, steps, g * size), "v": floats(batch, steps, g * size)}
        names = "q,k,v"
        if name == "packed":
            inputs, names = {"q": floats(batch, steps, (h + 2 * g) * size)}, "q,,"
        if buffer:
            inputs |= {"pk": floats(batch, g, buffer, size), "pv": floats(batch, g, buffer, size)}
        names += ",pk,pv" if buffer else ",,"
        inputs |= {"last": np.array(lengths, np.int32), "total": np.array(total, np.int32)}
        group = ms("GroupQueryAttention", names + ",last,total,cos,sin", "y,k2,v2", num_heads=h, kv_num_heads=g, **attributes)
        # The rest of a buffer has no meaning: only the results are compared where there is one.
        outputs = ["y"] if buffer > past or batch > 1 else ["y", "k2", "v2"]
        case(f"group_query_{name}", [group], inputs, outputs, tables, tolerance=1e-4)


def others():
    case("bias_gelu", [ms("BiasGelu", "x,b", "y")], {"x": floats(2, 3)}, ["y"], {"b": floats(3)})
    tables = {"we": floats(10, 4), "pe": floats(6, 4), "se": floats(2, 4), "g": floats(4), "b": floats(4)}
    words = {"i": integers(0, 10, (2, 5), np.int32), "s": integers(0, 2, (2, 5), np.int32)}
    layer = ms("EmbedLayerNormalization", "i,s,we,pe,se,g,b,m", "y,n,sum", epsilon=1e-6)
    words["m"] = np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], np.int32)
    case("embed_layer_norm", [layer], words, ["y", "n", "sum"], tables)
    layer = ms("EmbedLayerNormalization", "i,,we,pe,,g,b", "y,n")
    case("embed_layer_norm_words", [layer], {"i": words["i"]}, ["y", "n"], tables)
    x, weight = integers(0, 255, (2, 5, 6), np.uint8), integers(-SAFE, SAFE, (6, 36), np.int8)
    tables = {"w": weight, "b": floats(36), "xs": np.float32(0.01), "ws": np.float32(0.02), "xz": np.uint8(128), "wz": np.int8(0)}
    case("qattention", [ms("QAttention", "x,w,b,xs,ws,,xz,wz", "y", num_heads=3)], {"x": x}, ["y"], tables, tolerance=1e-4)


def ordered_bits():
    """Columns in groups: full groups in another order, groups of any length, and the plain order."""
    for bits, depth, kind, order in [
        (4, 64, "none", "shuffled"), (4, 72, "none", "shuffled"), (4, 64, "none", "any"), (4, 64, "none", "plain"),
        (4, 64, "floats", "shuffled"), (4, 72, "packed", "any"), (8, 64, "packed", "shuffled"), (2, 72, "none", "any"),
    ]:
        rows, block, blocks = 5, 16, -(-depth // 16)
        plain = np.repeat(np.arange(blocks), block)[:depth]
        groups = {"plain": plain, "shuffled": rng.permutation(plain), "any": rng.integers(0, blocks, depth)}[order].astype(np.int32)
        data, scale = integers(0, 256, (rows, blocks, block * bits // 8), np.uint8), floats(rows, blocks, scale=0.1)
        zero = {
            "none": np.full((rows, blocks), 2 ** (bits - 1)), "floats": floats(rows, blocks, scale=4),
            "packed": integers(0, 256, (rows, -(-blocks * bits // 8)), np.uint8)}[kind]
        weights = {"b": data, "s": scale, "g": groups, "bias": floats(rows)} | ({} if kind == "none" else {"z": zero})
        names = "x,b,s,,g,bias" if kind == "none" else "x,b,s,z,g,bias"
        product = ms("MatMulNBits", names, "y", K=depth, N=rows, bits=bits, block_size=block)
        # ONNX Runtime has no groups of 8 bits, and reads 2 bits and packed zero points wrongly.
        unpack = lambda packed: (packed[..., None] >> np.arange(0, 8, bits) & (1 << bits) - 1).reshape(rows, -1)
        zero = unpack(zero)[:, :blocks] if kind == "packed" else zero
        decoded = (unpack(data)[:, :depth] - zero[:, groups]) * scale[:, groups]
        written_out = {"w": decoded.T.astype(np.float32), "bias": weights["bias"]}
        stand_in = ([node("MatMul", "x,w", "h"), node("Add", "h,bias", "y")], written_out) if bits != 4 or kind == "packed" else None
        case(f"n_bits_ordered_{bits}_{depth}_{kind}_{order}", [product], {"x": floats(2, 3, depth)}, ["y"], weights, tolerance=1e-4, stand_in=stand_in)


def gathers():
    """An index out of range gives zeros."""
    index = np.array([[0, -1, 3], [2, 2, -7], [7, -8, 1]])
    for bits, size, zeros in [(4, 48, True), (4, 64, False), (8, 40, True), (8, 32, False), (2, 64, True)]:
        blocks = -(-size // 16)
        weights = {"d": integers(0, 256, (7, size * bits // 8), np.uint8), "s": floats(7, blocks, scale=0.1)}
        if zeros:
            weights["z"] = integers(0, 256, (7, -(-blocks * bits // 8)), np.uint8)
        pick = ms("GatherBlockQuantized", "d,i,s,z" if zeros else "d,i,s", "y", bits=bits, block_size=16)
        case(f"gather_blocks_{bits}_{size}_{zeros}", [pick], {"i": index}, ["y"], weights)
    weights = {"d": integers(0, 256, (3, 2, 20), np.uint8), "s": floats(3, 2, 3, scale=0.1).astype(np.float16)}
    pick = ms("GatherBlockQuantized", "d,i,s", "y", block_size=16, quantize_axis=-1)
    case("gather_blocks_half", [pick], {"i": np.array([2, 0], np.int32)}, ["y"], weights, tolerance=1e-3)
    for kind, low in [(TensorProto.INT4, -8), (TensorProto.UINT4, 0)]:
        for axes in [(0, 1), (1, 0), (2, 1), (1, 1)]:
            shape, of_scale = [3, 40, 5] if axes[1] == 1 else [40, 3, 5], [3, 3, 5]
            narrow = lambda name, shape: helper.make_tensor(name, kind, shape, rng.integers(low, low + 16, np.prod(shape)).tolist())
            weights = {"d": narrow("d", shape), "s": floats(*of_scale, scale=0.1)}
            if axes != (2, 1):
                weights["z"] = narrow("z", of_scale)
            pick = ms("GatherBlockQuantized", "d,i,s" + (",z" if "z" in weights else ""), "y", block_size=16, gather_axis=axes[0], quantize_axis=axes[1])
            name = f"gather_blocks_{'int4' if low else 'uint4'}_{axes[0]}_{axes[1]}"
            case(name, [pick], {"i": np.array([2, -1, 0, 99])}, ["y"], weights)


def fused_convs():
    x, weights = floats(2, 4, 7, 6), {"w": floats(6, 2, 3, 3), "b": floats(6)}
    for name, settings in [(None, []), ("Relu", []), ("Tanh", []), ("Sigmoid", []), ("LeakyRelu", [0.3]), ("Clip", [-0.5, 1.25]), ("HardSigmoid", [0.15, 0.4])]:
        attributes = {"group": 2, "strides": [2, 1], "pads": [1, 0, 1, 2], "dilations": [1, 2]}
        if name:
            attributes |= {"activation": name} | ({"activation_params": settings} if settings else {})
        for sum_too in [False, True]:
            conv = ms("FusedConv", "x,w,b,z" if sum_too else "x,w,b", "y", **attributes)
            inputs = {"x": x} | ({"z": floats(2, 6, 4, 4)} if sum_too else {})
            case(f"fused_conv_{name}_{sum_too}", [conv], inputs, ["y"], weights, tolerance=1e-4)
    silu = ms("FusedConv", "x,w", "y", activation="Silu", group=2)
    plain = [node("Conv", "x,w", "h", group=2), node("Sigmoid", "h", "s"), node("Mul", "h,s", "y")]
    case("fused_conv_silu", [silu], {"x": x}, ["y"], {"w": weights["w"]}, tolerance=1e-4, stand_in=(plain, {"w": weights["w"]}))


def reduced_integers():
    """ONNX Runtime's CPU has the operator's description alone: numbers, their mean, integers."""
    for kind, axes, keepdims in [(np.uint8, [2, 3], 1), (np.uint8, [-1], 0), (np.int8, [0, 2], 1), (np.int8, [0, 1, 2, 3], 0)]:
        low = -128 if kind == np.int8 else 0
        x = integers(low, low + 256, (2, 3, 4, 5), kind)
        scales = {"xs": np.float32(0.05), "xz": kind(low + 120), "ys": np.float32(0.03), "yz": kind(low + 110)}
        mean = ms("QLinearReduceMean", "x,xs,xz,ys,yz", "y", axes=axes, keepdims=keepdims)
        plain = [node("DequantizeLinear", "x,xs,xz", "h"), node("ReduceMean", "h,axes", "m", keepdims=keepdims), node("QuantizeLinear", "m,ys,yz", "y")]
        # A sum that is rounded to another float may move a mean between two integers by a unit.
        stand_in = (plain, scales | {"axes": np.array(axes)})
        case(f"qlinear_mean_{np.dtype(kind)}_{len(axes)}_{keepdims}", [mean], {"x": x}, ["y"], scales, tolerance=1.001, stand_in=stand_in)


def trees_of_many_rows():
    """Enough rows that several threads share them."""
    count, depth = 12, 4
    inner = 2**depth - 1
    feature, split = rng.integers(0, 6, count * inner), floats(count * inner)
    at = np.tile(np.arange(inner), count)
    tree = np.repeat(np.arange(count), inner)
    leaf = (2 * at + 1 >= inner).astype(np.int64)
    child = lambda side: np.where(leaf, tree * (inner + 1) + 2 * at + 1 + side - inner, tree * inner + 2 * at + 1 + side)
    leaves = count * (inner + 1)
    tensor = lambda name, values: numpy_helper.from_array(values, name)
    ensemble = node(
        "TreeEnsemble", "x", "y", "ai.onnx.ml", n_targets=3, aggregate_function=1, post_transform=0,
        tree_roots=(np.arange(count) * inner).tolist(), nodes_featureids=feature.tolist(), nodes_splits=tensor("s", split),
        nodes_modes=tensor("m", np.zeros(count * inner, np.uint8)), nodes_truenodeids=child(0).tolist(), nodes_trueleafs=leaf.tolist(),
        nodes_falsenodeids=child(1).tolist(), nodes_falseleafs=leaf.tolist(),
        leaf_targetids=rng.integers(0, 3, leaves).tolist(), leaf_weights=tensor("w", floats(leaves)))
    case("trees_of_many_rows", [ensemble], {"x": floats(800, 6)}, ["y"])


for family in [resizes, windows, control, trees, quantized_lstm, few_bits, integer_products, attentions, others, ordered_bits, gathers, fused_convs, reduced_integers, trees_of_many_rows]:
    family()
if not only:
    save_file(tensors, OUT)
    print(f"{sum(name.endswith('/model') for name in tensors)} cases, {OUT.stat().st_size} bytes")
