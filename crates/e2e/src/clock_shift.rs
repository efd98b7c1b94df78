//! Shifts the wall clock that one process sees. The clock of the machine stays as it is.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

/// Replaces libc's function. It adds the seconds in a file to the wall clock; other clocks are not changed.
const SOURCE: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t clock, struct timespec *now) {
    int result = syscall(SYS_clock_gettime, clock, now);
    const char *path = getenv("CLOCK_SHIFT_FILE");
    if (result != 0 || clock != CLOCK_REALTIME || path == NULL) return result;
    char text[32] = {0};
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return result;
    if (read(file, text, sizeof text - 1) > 0) now->tv_sec += atol(text);
    close(file);
    return result;
}
"#;

/// A wall clock that a test can set. Processes use it if they are started with [`Self::environment`].
pub struct ShiftedClock {
    library: PathBuf,
    shift: PathBuf,
}

impl ShiftedClock {
    /// Builds the library with the C compiler that Rust links with.
    pub fn new(dir: &Path) -> Self {
        let (source, library, shift) =
            (dir.join("clock-shift.c"), dir.join("clock-shift.so"), dir.join("clock-shift-seconds"));
        std::fs::write(&source, SOURCE).unwrap();
        let built = Command::new("cc").args(["-shared", "-fPIC", "-o"]).args([&library, &source]).status();
        assert!(built.unwrap().success());
        let clock = Self { library, shift };
        clock.set(0);
        clock
    }

    pub fn environment(&self) -> Vec<(String, String)> {
        let text = |path: &Path| path.to_string_lossy().into_owned();
        vec![
            ("LD_PRELOAD".to_owned(), text(&self.library)),
            ("CLOCK_SHIFT_FILE".to_owned(), text(&self.shift)),
        ]
    }

    /// Sets the clock to `seconds` after the true time.
    pub fn set(&self, seconds: i64) {
        let new = self.shift.with_extension("new");
        std::fs::write(&new, seconds.to_string()).unwrap();
        std::fs::rename(new, &self.shift).unwrap();
    }
}
