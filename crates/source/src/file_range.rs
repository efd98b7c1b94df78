//! A reader of a byte range of a file.

use std::{
    fs::File,
    io::{self, Read},
    os::unix::fs::FileExt as _,
};

/// Reads a byte range of a file with its own position, so that several readers can share the file.
pub(crate) struct FileRange<'a> {
    file: &'a File,
    position: u64,
    end: u64,
}

impl<'a> FileRange<'a> {
    pub fn new(file: &'a File, start: u64, end: u64) -> Self {
        Self { file, position: start, end }
    }
}

impl Read for FileRange<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let remaining = usize::try_from(self.end - self.position).unwrap_or(usize::MAX);
        let length = buffer.len().min(remaining);
        let read = self.file.read_at(&mut buffer[..length], self.position)?;
        self.position += read as u64;
        Ok(read)
    }
}
