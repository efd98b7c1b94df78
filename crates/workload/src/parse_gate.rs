//! Limits how many large texts are parsed at the same time: what is parsed from a text takes several times its size.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// How many large texts are parsed at the same time.
const MAX_LARGE: usize = 4;

static RUNNING: Mutex<usize> = Mutex::new(0);
static ENDED: Condvar = Condvar::new();

/// Parses a text. If it is large, it waits for others, which takes milliseconds: nothing is awaited meanwhile. `parse` must not
/// parse other large texts this way.
pub fn parse_limited<T>(is_large: bool, parse: impl FnOnce() -> T) -> T {
    let _turn = is_large.then(Turn::wait);
    parse()
}

struct Turn;

impl Turn {
    fn wait() -> Self {
        let others_run = |running: &mut usize| *running >= MAX_LARGE;
        let running = ENDED.wait_while(running(), others_run);
        *running.unwrap_or_else(PoisonError::into_inner) += 1;
        Self
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        *running() -= 1;
        ENDED.notify_one();
    }
}

fn running() -> MutexGuard<'static, usize> {
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::{
        sync::atomic::{AtomicUsize, Ordering},
        thread,
        time::Duration,
    };

    use super::*;

    #[test]
    fn few_large_texts_are_parsed_at_the_same_time() {
        let (parsing, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let parse = || {
            most.fetch_max(parsing.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            thread::sleep(Duration::from_millis(10));
            parsing.fetch_sub(1, Ordering::SeqCst);
        };
        thread::scope(|scope| {
            for _ in 0..4 * MAX_LARGE {
                scope.spawn(|| parse_limited(true, parse));
            }
        });
        let most = most.into_inner();
        assert!((1..=MAX_LARGE).contains(&most), "{most}");
    }
}
