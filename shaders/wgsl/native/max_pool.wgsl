// The greatest element of each window of planes, and its flat position in its plane; one invocation for
// each window. NaN is the greatest, and the first of equal elements wins.
// Header: alias T, is_nan(x); `params` with `total` (windows) and for each of three axes `size`, `window`,
// `stride`, `dilation`, `padding` and `outputs`; bindings `input`, `maxima`, `places` with their functions.

fn kernel(workgroup_index: u32, local_index: u32) {
    let i = workgroup_index * 256u + local_index;
    if (i >= params.total) {
        return;
    }
    let column = i % params.outputs2;
    let line = i / params.outputs2;
    let row = line % params.outputs1;
    let layer = line / params.outputs1 % params.outputs0;
    let plane = line / params.outputs1 / params.outputs0;
    let base = plane * params.size0 * params.size1 * params.size2;
    var best = T();
    var place = 0u;
    var found = false;
    for (var a = 0u; a < params.window0; a += 1u) {
        // Modulo 2^32, a position before the plane is far beyond its end.
        let z = layer * params.stride0 + a * params.dilation0 - params.padding0;
        if (z >= params.size0) {
            continue;
        }
        for (var b = 0u; b < params.window1; b += 1u) {
            let y = row * params.stride1 + b * params.dilation1 - params.padding1;
            if (y >= params.size1) {
                continue;
            }
            for (var c = 0u; c < params.window2; c += 1u) {
                let x = column * params.stride2 + c * params.dilation2 - params.padding2;
                if (x >= params.size2) {
                    continue;
                }
                let at = (z * params.size1 + y) * params.size2 + x;
                let element = load_input(base + at);
                if (!found || (!is_nan(best) && (is_nan(element) || element > best))) {
                    best = element;
                    place = at;
                    found = true;
                }
            }
        }
    }
    store_maxima(i, best);
    store_places(i, i32(place));
}
