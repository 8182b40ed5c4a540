//! [`Throughput`]: items per second.

use std::time::Duration;

use web_time::Instant;

/// Items per second, such as images. Pauses, such as for an evaluation, can be left out.
///
/// ```
/// use train::metrics::Throughput;
/// let mut throughput = Throughput::start();
/// for batch in 0..10 {
///     // … a step with 64 images …
///     throughput.add(64);
/// }
/// assert!(throughput.per_second() > 0.0);
/// assert_eq!(throughput.items(), 640);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Throughput {
    items: u64,
    /// The time before the latest pause.
    before: Duration,
    since: Option<Instant>,
}

impl Throughput {
    /// Starts the clock.
    pub fn start() -> Throughput {
        Throughput { items: 0, before: Duration::ZERO, since: Some(Instant::now()) }
    }

    /// Counts `items` more items.
    pub fn add(&mut self, items: u64) {
        self.items += items;
    }

    /// Stops the clock until [`Throughput::resume`].
    pub fn pause(&mut self) {
        self.before = self.elapsed();
        self.since = None;
    }

    /// Starts the clock again.
    pub fn resume(&mut self) {
        self.since.get_or_insert_with(Instant::now);
    }

    /// The number of items.
    pub fn items(&self) -> u64 {
        self.items
    }

    /// The time without pauses.
    pub fn elapsed(&self) -> Duration {
        self.before + self.since.map_or(Duration::ZERO, |since| since.elapsed())
    }

    /// Items per second; 0 if no time has passed.
    pub fn per_second(&self) -> f64 {
        let seconds = self.elapsed().as_secs_f64();
        if seconds > 0.0 { self.items as f64 / seconds } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_do_not_count() {
        let mut throughput = Throughput::start();
        throughput.add(10);
        throughput.pause();
        let (elapsed, rate) = (throughput.elapsed(), throughput.per_second());
        std::thread::sleep(Duration::from_millis(5));
        assert_eq!((throughput.elapsed(), throughput.per_second()), (elapsed, rate));
        throughput.resume();
        std::thread::sleep(Duration::from_millis(5));
        assert!(throughput.elapsed() >= elapsed + Duration::from_millis(5) && throughput.per_second() < rate);
    }
}
