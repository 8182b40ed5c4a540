"""The notebook of the guide runs, and its cells show tables, pictures and pages."""

import pathlib

import taper

NOTEBOOK = pathlib.Path(__file__).resolve().parents[3] / "docs/guide/notebook.ipynb"


def test_the_notebook_of_the_guide_runs(tmp_path):
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(NOTEBOOK, as_version=4)
    resources = {"metadata": {"path": str(tmp_path)}}
    NotebookClient(notebook, timeout=120, kernel_name="python3", resources=resources).execute()
    shown = [output.get("data", {}) for cell in notebook.cells for output in cell.get("outputs", [])]
    html = [one["text/html"] for one in shown if "text/html" in one]
    assert any("<table>" in one and "torch.float32 [4, 3]" in one for one in html)
    assert any("<iframe" in one and "http://127.0.0.1" in one for one in html)
    (picture,) = [one["image/svg+xml"] for one in shown if "image/svg+xml" in one]
    assert picture.startswith("<svg") and "2.weight" in picture
    assert any("on the right side" in one.get("text/plain", "") for one in shown)


def test_tensors_in_cells():
    small = taper.tensor([[1.0, -0.5]])._repr_html_()
    assert small.count("<td") == 2 and "-0.5000" in small and "torch.float32 [1, 2] on cpu" in small
    assert taper.tensor([True, False])._repr_html_().count("<td") == 2
    for other in (taper.zeros(30, 30), taper.zeros(2, 2, 2), taper.tensor(3), taper.zeros(0)):
        assert other._repr_html_().startswith("<pre>tensor(")
    page = taper.studio.Page("http://127.0.0.1:1/?a=1&b", 300)
    assert 'height="300"' in page._repr_html_() and "?a=1&amp;b" in page._repr_html_() and "&b" in repr(page)
