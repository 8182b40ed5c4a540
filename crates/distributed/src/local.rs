//! Ranks that are threads of one process, connected by channels.

use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};

use tensor_core::{Error, ErrorKind, Result};

use crate::transport::{Channel, Pool, Transport, Words};

/// One rank of several in this process.
pub(crate) struct Local {
    rank: usize,
    /// The senders to each rank, one for each channel; none to itself.
    to: Vec<Option<[Sender<Words>; 2]>>,
    from: Vec<Option<[Receiver<Words>; 2]>>,
    pool: Pool,
}

impl Local {
    /// A group of `size` ranks.
    pub(crate) fn group(size: usize) -> Vec<Local> {
        let new = |rank| Local { rank, to: Vec::new(), from: Vec::new(), pool: Pool::default() };
        let mut ranks: Vec<Local> = (0..size).map(new).collect();
        for a in 0..size {
            for b in 0..size {
                if a == b {
                    ranks[a].to.push(None);
                    ranks[a].from.push(None);
                    continue;
                }
                let [(send, receive), (send_pair, receive_pair)] = [channel(), channel()];
                ranks[a].to.push(Some([send, send_pair]));
                // Receivers from lower ranks come first, because `a` runs from 0 on.
                ranks[b].from.push(Some([receive, receive_pair]));
            }
        }
        ranks
    }
}

fn gone(rank: usize) -> Error {
    Error::new(ErrorKind::Distributed {
        op: "distributed",
        ranks: vec![rank],
        message: format!("rank {rank} has gone: its thread failed, or ended before it came to this call"),
    })
}

impl Transport for Local {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.to.len()
    }

    fn send(&mut self, to: usize, channel: Channel, message: Words) -> Result<()> {
        if let Some(Some(channels)) = self.to.get(to) {
            // A rank that has ended does not read it; the error is reported when a message from it is
            // awaited.
            let _ = channels[channel as usize].send(message);
        }
        Ok(())
    }

    fn try_receive(&mut self, from: usize, channel: Channel, words: usize) -> Result<Option<Words>> {
        let Some(Some(channels)) = self.from.get(from) else { return Err(gone(from)) };
        match channels[channel as usize].try_recv() {
            Ok(message) if message.len() == words => Ok(Some(message)),
            Ok(message) => Err(Error::new(ErrorKind::Distributed {
                op: "distributed",
                ranks: vec![from],
                message: format!("rank {from} sent {} words where {words} were expected", message.len()),
            })),
            Err(TryRecvError::Empty) => Ok(None),
            Err(TryRecvError::Disconnected) => Err(gone(from)),
        }
    }

    fn progress(&mut self) -> Result<bool> {
        Ok(true)
    }

    fn buffer(&mut self, words: usize) -> Words {
        self.pool.take(words)
    }

    fn recycle(&mut self, buffer: Words) {
        self.pool.give(buffer);
    }

    fn ends_together(&self) -> bool {
        false
    }

    /// The channels close, which the other ranks notice.
    fn close(self: Box<Self>, _: Option<&str>) {}
}
