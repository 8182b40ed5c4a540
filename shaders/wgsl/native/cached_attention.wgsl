// Attention of one query to the rows in use of two tables; a workgroup of 256 invocations for each query of a
// head. A block of rows has a score for each invocation, whose weights then multiply the rows of values.
// Header: HAS_CAP, WINDOW, HAS_SINKS, sink_of(head); `params` with `queries` (of all heads and texts),
// `heads`, `groups`, `length`, `width`, `features`, `across` (the power of two from `features` on), `long`,
// `short` (rows of the tables), `firsts`, `scale`, `cap`; bindings `query`, `long_keys`, `long_values`,
// `short_keys`, `short_values`, `places` and `out` with their functions.

// Less than any score, and finite: WGSL need not compute with infinities.
const LEAST = -3.0e38;

var<workgroup> weights: array<f32, 256>;
var<workgroup> lines: array<f32, 256>;
var<workgroup> span: vec2<u32>;

// The greatest number of all invocations, or their sum.
fn joined(local_index: u32, number: f32, adds: bool) -> f32 {
    workgroupBarrier();
    lines[local_index] = number;
    for (var half = 128u; half > 0u; half /= 2u) {
        workgroupBarrier();
        if (local_index < half) {
            let a = lines[local_index];
            let b = lines[local_index + half];
            lines[local_index] = select(max(a, b), a + b, adds);
        }
    }
    workgroupBarrier();
    return lines[0];
}

fn place(i: u32) -> u32 {
    return u32(max(load_places(i), 0i));
}

fn kernel(workgroup_index: u32, local_index: u32) {
    // Workgroups beyond the last query compute it once more, so that barriers are in uniform control flow.
    let query = min(workgroup_index, params.queries - 1u);
    let head = query / params.length % params.heads;
    let text = query / params.length / params.heads;
    let group = text * params.groups + head / (params.heads / params.groups);
    let used = min(place(1u), params.long);
    if (local_index == 0u) {
        let rows = used + min(place(2u), params.short);
        let end = max(rows + query % params.length + 1u, params.length) - params.length;
        let first = place(3u + min(text, params.firsts - 1u));
        let begin = max(max(first, place(0u)) - place(0u), max(end, WINDOW) - WINDOW);
        span = vec2<u32>(min(begin, end), end);
    }
    let seen = workgroupUniformLoad(&span);
    let feature = local_index % params.across;
    let part = local_index / params.across;
    let parts = 256u / params.across;
    var greatest = LEAST;
    var total = 0.0;
    if (HAS_SINKS) {
        greatest = sink_of(head);
        total = 1.0;
    }
    var sum = 0.0;
    for (var at = seen.x; at < seen.y; at += 256u) {
        let count = min(seen.y - at, 256u);
        let row = at + local_index;
        var score = LEAST;
        if (local_index < count) {
            var product = 0.0;
            let own = query * params.width;
            if (row < used) {
                let key = (group * params.long + row) * params.width;
                for (var e = 0u; e < params.width; e += 1u) {
                    product += load_query(own + e) * load_long_keys(key + e);
                }
            } else {
                let key = (group * params.short + row - used) * params.width;
                for (var e = 0u; e < params.width; e += 1u) {
                    product += load_query(own + e) * load_short_keys(key + e);
                }
            }
            score = product * bitcast<f32>(params.scale);
            if (HAS_CAP) {
                let cap = bitcast<f32>(params.cap);
                score = cap * tanh(clamp(score / cap, -20.0, 20.0));
            }
        }
        let next = max(greatest, joined(local_index, score, false));
        let weight = select(0.0, exp(score - next), local_index < count);
        weights[local_index] = weight;
        let factor = exp(greatest - next);
        total = total * factor + joined(local_index, weight, true);
        sum *= factor;
        greatest = next;
        if (feature < params.features) {
            for (var r = part; r < count; r += parts) {
                let row = at + r;
                var value = 0.0;
                if (row < used) {
                    value = load_long_values((group * params.long + row) * params.features + feature);
                } else {
                    value = load_short_values((group * params.short + row - used) * params.features + feature);
                }
                sum += weights[r] * value;
            }
        }
    }
    workgroupBarrier();
    lines[local_index] = sum;
    workgroupBarrier();
    if (part == 0u && feature < params.features && workgroup_index < params.queries) {
        var all = 0.0;
        for (var p = 0u; p < parts; p += 1u) {
            all += lines[p * params.across + feature];
        }
        store_out(query * params.features + feature, select(all / total, 0.0, seen.x == seen.y));
    }
}
