// Reading and adding by index. The header gives `alias T` (elements), `alias I` (indices) and `fn narrow(x: T) -> T`.
// A bad index is noted in `status`: the number of the launch first, then the index; elements in its place read as zero, or are
// not added.

fn note(index: I) {
    if (atomicCompareExchangeWeak(&status[0], 0u, p[1]).exchanged) {
        atomicStore(&status[1], u32(index));
        atomicStore(&status[2], select(0u, 1u, index < I(0)));
    }
}
fn is_bad(index: I, size: u32) -> bool { return index < I(0) || index >= I(size); }
