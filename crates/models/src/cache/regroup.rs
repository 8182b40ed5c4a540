//! A batch whose texts change: rows of several caches become the rows of one, each text ending at its last
//! position.

use tensor_core::{Error, Result, Tensor};

use super::{KvCache, OP, Rows, select_rows, table::Table};

/// Some rows of a cache.
struct Part<'a> {
    cache: &'a KvCache,
    rows: &'a [usize],
    /// The positions of the longest of these rows.
    longest: usize,
}

impl<'a> Part<'a> {
    fn new(cache: &'a KvCache, rows: &'a [usize]) -> Part<'a> {
        let longest = rows.iter().map(|&row| cache.text_len(row)).max().unwrap_or(0);
        Part { cache, rows, longest }
    }

    /// The number of rows of a table with this window that the texts of this part need.
    fn needed(&self, window: Option<usize>) -> usize {
        let rows = self.cache.rows.get(&window).copied().unwrap_or_default();
        (rows.long + rows.tail).min(self.longest)
    }

    /// This part of the tables of a layer with a window: `count` rows, of which the first are zeros.
    #[track_caller]
    fn tables(&self, layer: usize, window: Option<usize>, count: usize) -> Result<(Table, Table)> {
        let rows = self.cache.rows.get(&window).copied().unwrap_or_default();
        let [keys, values] = self.cache.layers[layer].in_use(&rows)?;
        let table = |tables: &[Table]| {
            let needed = self.needed(window);
            let all = Table::joined(tables, 2, self.cache.form())?;
            all.narrow(rows.long + rows.tail - needed, needed)?.select(self.rows)?.after_zeros(count - needed)
        };
        Ok((table(&keys)?, table(&values)?))
    }
}

impl KvCache {
    /// The number of positions of a row without its padding.
    pub(crate) fn text_len(&self, row: usize) -> usize {
        self.len - self.pads.get(row).copied().unwrap_or(0)
    }

    /// Whether rows of this cache can join those of others. The keys of texts whose frequencies change with
    /// their length are computed for a batch at once.
    pub(crate) fn can_join(&self) -> bool {
        self.texts.is_empty()
    }

    /// A cache with these rows of caches of one model, in this order. A shorter text gets padding before it,
    /// and padding before the longest text is dropped.
    ///
    /// # Errors
    /// Caches of different layers or without positions, a row that a cache does not have.
    #[track_caller]
    pub(crate) fn regrouped(parts: &[(&KvCache, &[usize])]) -> Result<KvCache> {
        let Some((first, _)) = parts.first() else { return Err(Error::invalid(OP, "no caches to join")) };
        for (cache, rows) in parts {
            if cache.windows != first.windows || cache.states.len() != first.states.len() {
                return Err(Error::invalid(OP, "caches of different layers cannot join"));
            }
            if cache.form() != first.form() {
                return Err(Error::invalid(OP, "packed and other caches cannot join"));
            }
            if cache.batch().is_none() {
                return Err(Error::invalid(OP, "a cache joins others after its first step"));
            }
            cache.check_rows(rows)?;
        }
        let parts: Vec<Part<'_>> = parts.iter().map(|(cache, rows)| Part::new(cache, rows)).collect();
        let mut joined = KvCache::new(first.windows.clone());
        joined.set_form(first.form());
        joined.len = parts.iter().map(|part| part.longest).max().unwrap_or(0);
        let pads: Vec<usize> = parts
            .iter()
            .flat_map(|part| part.rows.iter().map(|&row| joined.len - part.cache.text_len(row)))
            .collect();
        joined.pads = if pads.iter().all(|&pad| pad == 0) { Vec::new() } else { pads };
        for window in first.rows.keys() {
            let count = parts.iter().map(|part| part.needed(*window)).max().unwrap_or(0);
            let all = Rows { start: joined.len - count, long: count, ..Rows::default() };
            joined.rows.insert(*window, all.merged(*window, joined.len));
            let next = joined.rows[window];
            for (layer, _) in first.windows.iter().enumerate().filter(|(_, of)| *of == window) {
                let tables = parts.iter().map(|part| part.tables(layer, *window, count));
                let (keys, values): (Vec<Table>, Vec<Table>) =
                    tables.collect::<Result<Vec<_>>>()?.into_iter().unzip();
                let layer = &mut joined.layers[layer];
                layer.long =
                    Some([Table::joined(&keys, 0, layer.packed)?, Table::joined(&values, 0, layer.packed)?]);
                layer.store(next.start - all.start, &next)?;
            }
        }
        for layer in 0..first.states.len() {
            let mut states = Vec::new();
            for k in 0..first.states[layer].len() {
                let of_parts = parts.iter().map(|part| select_rows(&part.cache.states[layer][k], part.rows));
                states.push(Tensor::concat(&of_parts.collect::<Result<Vec<_>>>()?, 0)?);
            }
            joined.states.push(states);
        }
        Ok(joined)
    }
}
