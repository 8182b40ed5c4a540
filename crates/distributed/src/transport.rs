//! [`Transport`]: how messages get from one rank to another. All collectives are written once above it, in
//! `engine.rs`.

use tensor_core::Result;

/// The unit of a message, so that elements of every dtype are aligned in it.
pub type Words = Vec<u64>;

/// Messages between ranks that work together.
///
/// One thread owns a transport and makes all calls. No call may block: the caller polls, so that it knows
/// which ranks it waits for and can stop at a deadline. Messages of one channel from one rank to another
/// arrive in the order in which they were sent, and those of two channels do not wait for each other.
pub trait Transport {
    /// This process's number, from 0 on.
    fn rank(&self) -> usize;

    /// How many processes there are.
    fn size(&self) -> usize;

    /// Takes over a message for another rank.
    ///
    /// # Errors
    /// What the network reports.
    fn send(&mut self, to: usize, channel: Channel, message: Words) -> Result<()>;

    /// The next message from another rank if it is there, which has `words` words: the same number is given
    /// until it comes.
    ///
    /// # Errors
    /// A rank that has gone, a message of another length, or what the network reports.
    fn try_receive(&mut self, from: usize, channel: Channel, words: usize) -> Result<Option<Words>>;

    /// Moves on what is under way. Gives whether all that was sent has been taken over.
    ///
    /// # Errors
    /// What the network reports.
    fn progress(&mut self) -> Result<bool>;

    /// A buffer of so many words with unspecified contents, of those given back if there is one.
    fn buffer(&mut self, words: usize) -> Words;

    /// Gives a buffer back, to be used again.
    fn recycle(&mut self, buffer: Words);

    /// Whether no rank ends before all do. `MPI_Finalize` waits for all.
    fn ends_together(&self) -> bool;

    /// Ends. After a failure the other ranks cannot be waited for; where they would wait for this one for
    /// ever, they are ended.
    fn close(self: Box<Self>, failure: Option<&str>);
}

/// Which messages follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Channel {
    /// Those of collectives.
    Collective,
    /// Those of `send` and `receive`.
    Pair,
}

impl Channel {
    /// All of them, in order.
    pub const ALL: [Channel; 2] = [Channel::Collective, Channel::Pair];
}

/// Buffers that were given back.
#[derive(Debug, Default)]
pub(crate) struct Pool(Vec<Words>);

/// Buffers kept for another use at most.
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
