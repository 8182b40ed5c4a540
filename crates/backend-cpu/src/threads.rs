//! How many threads may share a kernel.

/// The threads that a kernel started here may use.
///
/// One on a thread of rayon's own: waiting for others there would take up unrelated work of its caller's, which may want the very
/// device that is being waited for.
pub(crate) fn available() -> usize {
    if rayon::current_thread_index().is_some() { 1 } else { rayon::current_num_threads() }
}
