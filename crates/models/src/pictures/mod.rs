//! Pictures in the prompts of language models.
//!
//! A [`PictureProcessor`] cuts a picture into tiles, and says which text stands for it. [`Pictures`] has
//! those that a model is reading: the vectors of a picture have numbers of their own, beyond the vocabulary,
//! so that a prompt with pictures is a list of numbers as any other one. Nothing that generates text has to
//! know them.

mod processor;
mod resample;

use std::{
    collections::VecDeque,
    fmt,
    hash::{BuildHasher, Hasher, RandomState},
    ops::Range,
    sync::{
        Arc, Mutex, OnceLock, Weak,
        atomic::{AtomicUsize, Ordering},
    },
};

use tensor_core::{Device, Error, Result, Tensor, lock};

pub use processor::{PICTURE_TOKEN, PictureProcessor, PreparedPicture};

const OP: &str = "Pictures";
/// The number of pictures whose numbers are kept for when they come again.
const MAX_KNOWN_PICTURES: usize = 4096;
/// The end of all numbers: indices have 32 bits and a sign.
const END: u32 = i32::MAX as u32;

/// Places in a list of numbers with their rows in a table, and the table.
pub(crate) type Rows = (Vec<(usize, usize)>, Tensor);

/// The pictures that a model is reading. A clone is the same object.
#[derive(Clone)]
pub struct Pictures(Arc<Registry>);

struct Registry {
    /// The token in whose place a picture stands.
    token: u32,
    /// The vectors of a tile.
    tile_tokens: usize,
    /// Two secret keys, by which pictures with equal hashes are equal.
    keys: [RandomState; 2],
    state: Mutex<State>,
    /// The number of pictures in use.
    count: AtomicUsize,
}

struct State {
    /// The number of the next vector.
    next: u32,
    /// The first numbers of pictures that were seen, by their hashes.
    known: VecDeque<([u64; 2], u32)>,
    used: Vec<Weak<Entry>>,
}

/// A picture that a model may read, as long as this handle is there.
#[derive(Clone)]
pub struct Picture(Arc<Entry>);

struct Entry {
    first: u32,
    prepared: PreparedPicture,
    /// The vectors `[tokens, width]` of each tile that was read.
    features: Vec<OnceLock<Tensor>>,
    registry: Arc<Registry>,
}

impl Drop for Entry {
    fn drop(&mut self) {
        let mut state = lock(&self.registry.state);
        state.used.retain(|entry| entry.strong_count() > 0);
        self.registry.count.fetch_sub(1, Ordering::Release);
    }
}

impl Picture {
    /// The numbers of its vectors.
    pub fn tokens(&self) -> Range<u32> {
        let Entry { first, features, registry, .. } = &*self.0;
        *first..*first + (features.len() * registry.tile_tokens) as u32
    }
}

impl fmt::Debug for Picture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Picture").field(&self.tokens()).finish()
    }
}

impl fmt::Debug for Pictures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pictures").field("count", &self.0.count.load(Ordering::Acquire)).finish()
    }
}

impl Pictures {
    /// No pictures, of a model with this vocabulary. `token` is the one in whose place a picture stands, and
    /// a tile has `tile_tokens` vectors.
    pub(crate) fn new(vocab_size: usize, token: u32, tile_tokens: usize) -> Pictures {
        let next = u32::try_from(vocab_size).unwrap_or(END);
        let state = State { next, known: VecDeque::new(), used: Vec::new() };
        Pictures(Arc::new(Registry {
            token,
            tile_tokens,
            keys: [RandomState::new(), RandomState::new()],
            state: Mutex::new(state),
            count: AtomicUsize::new(0),
        }))
    }

    /// Takes a picture, which gets the numbers that it had before if it comes again: what a cache has of a
    /// text with it can be used.
    ///
    /// # Errors
    /// More pictures than there are numbers, after millions of them.
    #[track_caller]
    pub fn add(&self, prepared: PreparedPicture) -> Result<Picture> {
        let registry = &self.0;
        let hash = registry.keys.each_ref().map(|key| {
            let mut hasher = key.build_hasher();
            prepared.bytes().for_each(|tile| hasher.write(tile));
            hasher.write_usize(prepared.count());
            hasher.finish()
        });
        let tokens = prepared.count() * registry.tile_tokens;
        let mut state = lock(&registry.state);
        let known = state.known.iter().position(|(other, _)| *other == hash);
        let first = match known.and_then(|at| state.known.remove(at)) {
            Some((_, first)) => first,
            None => {
                let first = state.next;
                let end = u32::try_from(tokens).ok().and_then(|tokens| first.checked_add(tokens));
                let Some(end) = end.filter(|end| *end <= END) else {
                    return Err(Error::invalid(OP, "there are no numbers left for the vectors of pictures"));
                };
                state.next = end;
                first
            }
        };
        state.known.push_back((hash, first));
        if state.known.len() > MAX_KNOWN_PICTURES {
            state.known.pop_front();
        }
        let features = (0..prepared.count()).map(|_| OnceLock::new()).collect();
        let entry = Arc::new(Entry { first, prepared, features, registry: registry.clone() });
        registry.count.fetch_add(1, Ordering::Release);
        state.used.push(Arc::downgrade(&entry));
        Ok(Picture(entry))
    }

    /// A prompt whose tokens of pictures are the vectors of these pictures, in their order.
    ///
    /// # Errors
    /// Another number of tokens of pictures than the pictures have vectors.
    #[track_caller]
    pub fn prompt(&self, mut tokens: Vec<u32>, pictures: &[Picture]) -> Result<Vec<u32>> {
        let places = tokens.iter_mut().filter(|token| **token == self.0.token);
        let (mut vectors, mut count) = (pictures.iter().flat_map(Picture::tokens), 0usize);
        for place in places {
            count += 1;
            if let Some(vector) = vectors.next() {
                *place = vector;
            }
        }
        let all: usize = pictures.iter().map(|picture| picture.tokens().len()).sum();
        match count == all {
            true => Ok(tokens),
            false => {
                let message = format!("{count} tokens of pictures for {all} vectors of {}", pictures.len());
                Err(Error::invalid(OP, format!("{message} pictures: is {PICTURE_TOKEN} in a text?")))
            }
        }
    }

    /// Whether no picture is in use.
    pub fn is_empty(&self) -> bool {
        self.0.count.load(Ordering::Acquire) == 0
    }

    /// Whether a picture in use has this number.
    pub(crate) fn has(&self, number: u32) -> bool {
        !self.is_empty() && self.used().iter().any(|entry| Picture(entry.clone()).tokens().contains(&number))
    }

    fn used(&self) -> Vec<Arc<Entry>> {
        lock(&self.0.state).used.iter().filter_map(Weak::upgrade).collect()
    }

    /// The places of vectors in these numbers, with their rows in a table, and the table; none if there are
    /// no such numbers. `encode` makes the vectors `[1, tokens, width]` of a tile, once for each picture.
    #[track_caller]
    pub(crate) fn rows(
        &self,
        numbers: &[u32],
        vocab_size: usize,
        device: &Device,
        encode: impl Fn(&Tensor) -> Result<Tensor>,
    ) -> Result<Option<Rows>> {
        let tile_tokens = self.0.tile_tokens;
        let used = if self.is_empty() { Vec::new() } else { self.used() };
        let (mut places, mut tiles) = (Vec::new(), Vec::new());
        let mut tables: Vec<Tensor> = Vec::new();
        for (at, &number) in numbers.iter().enumerate().filter(|(_, number)| **number as usize >= vocab_size)
        {
            let found = used.iter().find(|entry| Picture((*entry).clone()).tokens().contains(&number));
            let Some(entry) = found else {
                let message = format!("the number {number} belongs to no picture in use");
                return Err(Error::invalid(OP, message));
            };
            let vector = (number - entry.first) as usize;
            let tile = (entry.first, vector / tile_tokens);
            let table = match tiles.iter().position(|known| *known == tile) {
                Some(table) => table,
                None => {
                    let features = &entry.features[tile.1];
                    let vectors = match features.get() {
                        Some(vectors) => vectors.clone(),
                        None => {
                            let vectors = encode(&entry.prepared.tile(tile.1, device)?)?.squeeze(0)?;
                            features.get_or_init(|| vectors).clone()
                        }
                    };
                    tables.push(vectors);
                    tiles.push(tile);
                    tiles.len() - 1
                }
            };
            places.push((at, table * tile_tokens + vector % tile_tokens));
        }
        if places.is_empty() {
            return Ok(None);
        }
        Ok(Some((places, Tensor::concat(&tables, 0)?)))
    }
}
