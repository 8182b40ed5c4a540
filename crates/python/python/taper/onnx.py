"""``torch.onnx``: networks as files."""


def export(*args, **kwargs):
    raise NotImplementedError("torch.onnx.export: Taper writes ONNX files from Rust, not yet from Python")


def is_in_onnx_export():
    return False
