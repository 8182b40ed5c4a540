// Like gather, for elements smaller than a word that do not move in whole words. One invocation makes four
// neighbours of the output, which are whole words, each from an index of its own.
// Header: as gather, with `total` and `run` in elements, and without `parts`, `step` and Word.

fn element(i: u32) -> u32 {
    let run = i / params.run;
    let place = places(run);
    let word = load_index(place.x);
    let at = index_value(word);
    if (at.y != 0u || at.x >= params.size) {
        report(word);
        return 0u;
    }
    // Modulo 2^32, an index before the slice is far beyond its end.
    let along = at.x - params.start;
    if (along >= params.count) {
        return load_output(i);
    }
    return load_input(place.y + along * params.axis_stride + (i - run * params.run) * params.run_stride);
}

fn kernel(workgroup_index: u32, local_index: u32) {
    let first = (workgroup_index * 256u + local_index) * 4u;
    if (first >= params.total) {
        return;
    }
    let last = params.total - 1u;
    let four = vec4<u32>(
        element(first),
        element(min(first + 1u, last)),
        element(min(first + 2u, last)),
        element(min(first + 3u, last)),
    );
    store_first_output(first, four, params.total - first);
}
