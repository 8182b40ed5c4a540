// A level of a segmented scatter: output[key] = one_of(output[key], each value of that key, in order), for
// entries that are sorted by key. An invocation walks CHUNK entries in one column. It combines the values of
// each run of equal keys. A run inside the chunk is complete, so it is added to the output. The first and
// the last run may go on in the neighbouring chunks, so they become two entries of the next level. The last
// level has one chunk for each line, in which every run is complete. No two invocations of any level add to
// one element.
// Header: alias T, const CHUNK, LAST (whether this is the last level) and NO_KEY (of entries without a
// value), `params` with `total`, `columns`, `chunks` (of a line), `length` (entries of a line),
// `output_stride`; binding `output`; functions places(i) (offsets of column i in src and in the output),
// entry(e) (the key and the position of the value of entry e), value(position, offset in src, column),
// one_of(a, b) and push(e, column, key, value), which stores an entry of the next level.

var<private> run_key: u32;
var<private> run_value: T;
var<private> runs: u32;

fn add(place: u32) {
    let o = place + run_key * params.output_stride;
    store_output(o, one_of(load_output(o), run_value));
}

// Takes the next entry of the chunk.
fn take(chunk: u32, column: u32, place: u32, key: u32, x: T) {
    if (key == NO_KEY) {
        return;
    }
    if (key == run_key) {
        run_value = one_of(run_value, x);
        return;
    }
    if (run_key != NO_KEY) {
        if (LAST || runs > 0u) {
            add(place);
        } else {
            push(2u * chunk, column, run_key, run_value);
        }
        runs += 1u;
    }
    run_key = key;
    run_value = x;
}

fn kernel(workgroup_index: u32, local_index: u32) {
    let g = workgroup_index * 256u + local_index;
    if (g >= params.total) {
        return;
    }
    let chunk = g / params.columns;
    let column = g - chunk * params.columns;
    let line = chunk / params.chunks;
    let begin = line * params.length + (chunk - line * params.chunks) * CHUNK;
    let end = min(begin + CHUNK, (line + 1u) * params.length);
    let place = places(line * params.columns + column);
    run_key = NO_KEY;
    runs = 0u;
    for (var e = begin; e < end; e += 4u) {
        // Loads that do not wait for each other; the last entry is repeated after the end.
        let e0 = entry(e);
        let e1 = entry(min(e + 1u, end - 1u));
        let e2 = entry(min(e + 2u, end - 1u));
        let e3 = entry(min(e + 3u, end - 1u));
        let x0 = value(e0.y, place.x, column);
        let x1 = value(e1.y, place.x, column);
        let x2 = value(e2.y, place.x, column);
        let x3 = value(e3.y, place.x, column);
        take(chunk, column, place.y, e0.x, x0);
        take(chunk, column, place.y, select(NO_KEY, e1.x, e + 1u < end), x1);
        take(chunk, column, place.y, select(NO_KEY, e2.x, e + 2u < end), x2);
        take(chunk, column, place.y, select(NO_KEY, e3.x, e + 3u < end), x3);
    }
    if (LAST) {
        if (run_key != NO_KEY) {
            add(place.y);
        }
        return;
    }
    // A chunk with a single run has one entry with a value.
    if (runs == 0u) {
        push(2u * chunk, column, run_key, run_value);
        push(2u * chunk + 1u, column, NO_KEY, run_value);
    } else {
        push(2u * chunk + 1u, column, run_key, run_value);
    }
}
