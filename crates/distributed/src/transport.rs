//! [`Transport`]: sends messages from one rank to another. All collectives are implemented on top of it, in
//! `engine.rs`.

use tensor_core::Result;

/// A message. Its unit is a word, so that elements of every dtype are aligned.
pub type Words = Vec<u64>;

/// Messages between the ranks of a group.
///
/// One thread owns a transport and makes all calls. No call may block: the caller polls, so that it knows
/// which ranks it waits for and can stop at a deadline. Messages of one channel from one rank to another
/// arrive in the order in which they were sent, and the two channels do not wait for each other.
pub trait Transport {
    /// The number of this process, from 0 on.
    fn rank(&self) -> usize;

    /// The number of processes.
    fn size(&self) -> usize;

    /// Sends a message to another rank.
    ///
    /// # Errors
    /// An error of the network.
    fn send(&mut self, to: usize, channel: Channel, message: Words) -> Result<()>;

    /// The next message from another rank if it has arrived; it must have `words` words. Until it arrives,
    /// calls pass the same number.
    ///
    /// # Errors
    /// A rank that has ended, a message of another length, or an error of the network.
    fn try_receive(&mut self, from: usize, channel: Channel, words: usize) -> Result<Option<Words>>;

    /// Advances pending messages. Returns whether all sends are complete.
    ///
    /// # Errors
    /// An error of the network.
    fn progress(&mut self) -> Result<bool>;

    /// A buffer of `words` words with unspecified contents, a recycled one if possible.
    fn buffer(&mut self, words: usize) -> Words;

    /// Returns a buffer for reuse.
    fn recycle(&mut self, buffer: Words);

    /// Whether no rank ends before all do. `MPI_Finalize` waits for all.
    fn ends_together(&self) -> bool;

    /// Ends the transport. After a failure it does not wait for the other ranks; those that would wait for
    /// this one forever are ended.
    fn close(self: Box<Self>, failure: Option<&str>);
}

/// An ordered sequence of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Channel {
    /// Messages of collectives.
    Collective,
    /// Messages of `send` and `receive`.
    Pair,
}

impl Channel {
    /// All channels, in order.
    pub const ALL: [Channel; 2] = [Channel::Collective, Channel::Pair];
}

/// Recycled buffers.
#[derive(Debug, Default)]
pub(crate) struct Pool(Vec<Words>);

/// The greatest number of buffers that are kept for reuse.
const KEPT: usize = 64;

impl Pool {
    /// The smallest buffer that is large enough, or a new one.
    pub(crate) fn take(&mut self, words: usize) -> Words {
        let fits = self.0.iter().enumerate().filter(|(_, buffer)| buffer.capacity() >= words);
        let mut buffer = match fits.min_by_key(|(_, buffer)| buffer.capacity()).map(|(k, _)| k) {
            Some(k) => self.0.swap_remove(k),
            None => Words::new(),
        };
        buffer.resize(words, 0);
        buffer
    }

    pub(crate) fn give(&mut self, buffer: Words) {
        if self.0.len() < KEPT && buffer.capacity() > 0 {
            self.0.push(buffer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_gives_the_smallest_buffer_that_is_large_enough() {
        let mut pool = Pool::default();
        let (small, large) = (Words::with_capacity(10), Words::with_capacity(1000));
        let places = (small.as_ptr(), large.as_ptr());
        pool.give(large);
        pool.give(small);
        let (first, second) = (pool.take(7), pool.take(7));
        assert_eq!((first.as_ptr(), second.as_ptr()), places);
        assert_eq!((first.len(), second.len()), (7, 7));
        assert_eq!(pool.take(3).len(), 3);
    }
}
