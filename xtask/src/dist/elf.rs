//! Checks ELF files for a dynamic linker and shared libraries.

use anyhow::{Context as _, Result, bail, ensure};

const HEADER: usize = 64;
const PROGRAM_HEADERS_AT: usize = 32;
const PROGRAM_HEADER_SIZE_AT: usize = 54;
const PROGRAM_HEADER_COUNT_AT: usize = 56;
const PT_DYNAMIC: u64 = 2;
const PT_INTERP: u64 = 3;
const DYNAMIC_ENTRY: usize = 16;
const DT_NULL: u64 = 0;
const DT_NEEDED: u64 = 1;

/// Returns an error if a program needs an interpreter or a shared library. The image contains neither.
pub fn require_static(file: &[u8]) -> Result<()> {
    // Both supported architectures are 64-bit and little-endian.
    ensure!(file.starts_with(b"\x7fELF\x02\x01"), "not a 64-bit little-endian ELF file");
    ensure!(file.len() >= HEADER, "the ELF header is truncated");
    let at = offset(file, PROGRAM_HEADERS_AT, 8)?;
    let size = offset(file, PROGRAM_HEADER_SIZE_AT, 2)?;
    for number in 0..offset(file, PROGRAM_HEADER_COUNT_AT, 2)? {
        let header = at + number * size;
        match integer(file, header, 4)? {
            PT_INTERP => bail!("it needs a dynamic linker (PT_INTERP)"),
            PT_DYNAMIC => {
                let (from, length) = (offset(file, header + 8, 8)?, offset(file, header + 32, 8)?);
                require_no_libraries(file, from, length)?;
            }
            _ => {}
        }
    }
    Ok(())
}

fn require_no_libraries(file: &[u8], from: usize, length: usize) -> Result<()> {
    for entry in (from..from + length).step_by(DYNAMIC_ENTRY) {
        match integer(file, entry, 8)? {
            DT_NULL => break,
            DT_NEEDED => bail!("it needs a shared library (DT_NEEDED)"),
            _ => {}
        }
    }
    Ok(())
}

fn offset(file: &[u8], at: usize, bytes: usize) -> Result<usize> {
    Ok(usize::try_from(integer(file, at, bytes)?)?)
}

/// Reads a little-endian integer.
fn integer(file: &[u8], at: usize, bytes: usize) -> Result<u64> {
    let found = at.checked_add(bytes).and_then(|end| file.get(at..end)).context("the file is truncated")?;
    Ok(found.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a panic fails the test")]

    use super::*;

    /// Returns an ELF file with the given segments (type and content).
    fn program(segments: &[(u64, &[u64])]) -> Vec<u8> {
        let mut file = b"\x7fELF\x02\x01".to_vec();
        file.resize(HEADER, 0);
        file[PROGRAM_HEADERS_AT] = 64;
        file[PROGRAM_HEADER_SIZE_AT] = 56;
        file[PROGRAM_HEADER_COUNT_AT] = u8::try_from(segments.len()).unwrap();
        let mut content = HEADER + segments.len() * 56;
        for (kind, integers) in segments {
            let mut header = [0; 56];
            header[0] = u8::try_from(*kind).unwrap();
            header[8..16].copy_from_slice(&(content as u64).to_le_bytes());
            header[32..40].copy_from_slice(&(integers.len() as u64 * 8).to_le_bytes());
            content += integers.len() * 8;
            file.extend(header);
        }
        let integers = segments.iter().flat_map(|(_, integers)| *integers);
        file.extend(integers.flat_map(|integer| integer.to_le_bytes()));
        file
    }

    #[test]
    fn interpreters_and_libraries_are_rejected() {
        for (file, expected) in [
            (program(&[(1, &[])]), None),
            (program(&[(1, &[]), (PT_DYNAMIC, &[30, 1, DT_NULL, 0, DT_NEEDED, 9])]), None),
            (program(&[(1, &[]), (PT_DYNAMIC, &[30, 1, DT_NEEDED, 9])]), Some("DT_NEEDED")),
            (program(&[(PT_INTERP, &[])]), Some("PT_INTERP")),
            (program(&[(PT_DYNAMIC, &[30, 1])])[..125].to_vec(), Some("truncated")),
            (b"#!/bin/sh".to_vec(), Some("not a 64-bit")),
            (std::fs::read(std::env::current_exe().unwrap()).unwrap(), Some("PT_INTERP")),
        ] {
            let result = require_static(&file).map_err(|error| error.to_string());
            match expected {
                None => assert_eq!(result, Ok(())),
                Some(expected) => assert!(result.as_ref().unwrap_err().contains(expected), "{result:?}"),
            }
        }
    }
}
