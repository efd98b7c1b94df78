//! A part of a file, read without a position that others share.

use std::{
    fs::File,
    io::{self, Read},
    os::unix::fs::FileExt as _,
};

pub(crate) struct Section<'a> {
    file: &'a File,
    position: u64,
    end: u64,
}

impl<'a> Section<'a> {
    pub fn new(file: &'a File, start: u64, end: u64) -> Self {
        Self { file, position: start, end }
    }
}

impl Read for Section<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = usize::try_from(self.end - self.position).unwrap_or(usize::MAX);
        let length = buffer.len().min(left);
        let read = self.file.read_at(&mut buffer[..length], self.position)?;
        self.position += read as u64;
        Ok(read)
    }
}
