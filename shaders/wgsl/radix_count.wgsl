// The first step of a pass of a radix sort, one workgroup for each tile of a line: how often each digit
// occurs in the tile.
// Header: const TILE (elements of a tile, a multiple of 1024), `params` with `total` (tiles of all lines),
// `length`, `tiles` (of a line), `shift` (the lowest bit of the digit); binding `counts`; functions
// line_at(line) (the place of a line) and word(base, r) (the word of a key that has the digit).

var<workgroup> occurrences: array<atomic<u32>, 256>;

fn occurs(word: u32) {
    atomicAdd(&occurrences[(word >> params.shift) & 255u], 1u);
}

fn kernel(workgroup_index: u32, local_index: u32) {
    // Every invocation stays to the end because of the barriers; surplus workgroups repeat the last tile.
    let g = min(workgroup_index, params.total - 1u);
    let line = g / params.tiles;
    let tile = g - line * params.tiles;
    let end = min((tile + 1u) * TILE, params.length);
    let base = line_at(line);
    atomicStore(&occurrences[local_index], 0u);
    workgroupBarrier();
    for (var r = tile * TILE + local_index; r < end; r += 1024u) {
        // Loads that do not wait for each other; the last element is repeated after the end.
        let word0 = word(base, r);
        let word1 = word(base, min(r + 256u, end - 1u));
        let word2 = word(base, min(r + 512u, end - 1u));
        let word3 = word(base, min(r + 768u, end - 1u));
        occurs(word0);
        if (r + 256u < end) {
            occurs(word1);
        }
        if (r + 512u < end) {
            occurs(word2);
        }
        if (r + 768u < end) {
            occurs(word3);
        }
    }
    workgroupBarrier();
    if (workgroup_index < params.total) {
        counts[(line * 256u + local_index) * params.tiles + tile] = atomicLoad(&occurrences[local_index]);
    }
}
