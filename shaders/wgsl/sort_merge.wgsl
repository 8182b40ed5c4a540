// A step of a sort: merges neighbouring runs of a line and keeps the first `kept` elements. One invocation
// makes 8 neighbours; a bisection finds its start in both runs (merge path: Odeh, Green, Mwassi, Shmueli
// and Birk 2012).
// Header: alias Key, `params` with `total`, `count` (elements of a line), `width` (of a run), `pairs`,
// `kept` (the most elements of a merged run), `parts` (invocations for each merged run); bindings
// `keys_in`, `indices_in` and outputs; functions less(a, b) and put(line, place, key, index).

fn kernel(workgroup_index: u32, local_index: u32) {
    let g = workgroup_index * 64u + local_index;
    if (g >= params.total) {
        return;
    }
    let merged = g / params.parts;
    let part = g - merged * params.parts;
    let line = merged / params.pairs;
    let pair = merged - line * params.pairs;
    let start = 2u * pair * params.width;
    let count_a = min(params.width, params.count - start);
    let count_b = min(params.width, params.count - start - count_a);
    let a = line * params.count + start;
    let b = a + count_a;
    let first = part * 8u;
    let end = min(first + 8u, min(count_a + count_b, params.kept));
    if (first >= end) {
        return;
    }
    // Finds how many elements of the first run come before `first`; equal elements of the first run do.
    var low = first - min(first, count_b);
    var high = min(first, count_a);
    while (low < high) {
        let middle = (low + high) / 2u;
        if (less(keys_in[b + first - 1u - middle], keys_in[a + middle])) {
            high = middle;
        } else {
            low = middle + 1u;
        }
    }
    var i = low;
    var j = first - low;
    var key_a = keys_in[min(a + i, b - 1u)];
    var key_b = keys_in[min(b + j, b + count_b - 1u)];
    for (var p = first; p < end; p += 1u) {
        let place = pair * params.kept + p;
        if (i < count_a && (j >= count_b || !less(key_b, key_a))) {
            put(line, place, key_a, indices_in[a + i]);
            i += 1u;
            key_a = keys_in[min(a + i, b - 1u)];
        } else {
            put(line, place, key_b, indices_in[b + j]);
            j += 1u;
            key_b = keys_in[min(b + j, b + count_b - 1u)];
        }
    }
}
