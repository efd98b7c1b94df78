//! Checks a pack before its objects are put together. Objects may be stored as differences to others, so that a few bytes can
//! stand for objects that do not fit into memory.

use std::{
    collections::HashMap,
    io::{self, BufRead, Read as _},
    sync::atomic::{AtomicBool, Ordering},
};

use flate2::bufread::ZlibDecoder;
use gix_pack::data::{Entry, entry::Header, header};

use crate::limits::GitLimits;

/// Length of the id of an object.
const ID_BYTES: usize = 20;
/// The longest beginning of a difference: the sizes of its base and of its result.
const SIZES_BYTES: u64 = 20;
/// The last shift of a size. Larger sizes are refused.
const MAX_SHIFT: u32 = 56;

/// Reads a pack. The error says why it is refused.
pub(super) fn check(
    pack: &mut impl BufRead,
    limits: &GitLimits,
    interrupt: &AtomicBool,
) -> Result<(), String> {
    let unreadable = |error: io::Error| format!("its objects cannot be read: {error}");
    let mut start = [0; header::SIZE];
    pack.read_exact(&mut start).map_err(unreadable)?;
    let (_, objects) = header::decode(&start).map_err(|error| error.to_string())?;
    if objects > limits.objects {
        return Err(format!("it has {objects} objects, more than {}", limits.objects));
    }
    let mut chains = Chains::default();
    let mut offset = header::SIZE as u64;
    for _ in 0..objects {
        if interrupt.load(Ordering::Relaxed) {
            return Err("reading its objects was interrupted".to_owned());
        }
        let entry = Entry::from_read(pack, offset, ID_BYTES).map_err(unreadable)?;
        check_size(entry.decompressed_size, limits)?;
        let (beginning, compressed) = inflate(pack, entry.decompressed_size).map_err(unreadable)?;
        let size = if entry.header.is_delta() {
            result_size(&beginning).ok_or("the size of an object is invalid")?
        } else {
            entry.decompressed_size
        };
        check_size(size, limits)?;
        chains.add(offset, entry.header, size, limits)?;
        offset += entry.header_size() as u64 + compressed;
    }
    Ok(())
}

fn check_size(size: u64, limits: &GitLimits) -> Result<(), String> {
    let limit = limits.object_bytes;
    if size > limit as u64 {
        return Err(format!(
            "one of its files or folders has {size} bytes, more than {limit}; that counts even if spec.ignore leaves it out, so \
             remove it from the branch"
        ));
    }
    Ok(())
}

/// The memory that objects need while they are put together.
#[derive(Debug, Default)]
struct Chains {
    /// The size of an object and of all objects that it is a difference to, by its offset.
    sizes: HashMap<u64, u64>,
    longest: u64,
    /// The size of all objects that are differences.
    differences: u64,
    /// Whether a difference names its base by an id. It may be any object, also a later one.
    named_by_id: bool,
}

impl Chains {
    fn add(&mut self, offset: u64, header: Header, size: u64, limits: &GitLimits) -> Result<(), String> {
        let base = match header {
            Header::OfsDelta { base_distance } => {
                let base = Header::verified_base_pack_offset(offset, base_distance);
                let base = base.and_then(|base| self.sizes.get(&base));
                *base.ok_or("an object is a difference to one that does not exist")?
            }
            Header::RefDelta { .. } => {
                self.named_by_id = true;
                0
            }
            Header::Commit | Header::Tree | Header::Blob | Header::Tag => 0,
        };
        let chain = base.saturating_add(size);
        self.sizes.insert(offset, chain);
        self.longest = self.longest.max(chain);
        if header.is_delta() {
            self.differences = self.differences.saturating_add(size);
        }
        let needed = self.needed(limits.object_bytes as u64);
        if needed > limits.chain_bytes {
            return Err(format!(
                "its objects need more than {} bytes of memory, because they are stored as differences to each other; \
                 remove large files, or move them to another repository",
                limits.chain_bytes
            ));
        }
        Ok(())
    }

    /// An object and all objects that it is a difference to may be in memory at the same time.
    fn needed(&self, largest: u64) -> u64 {
        if self.named_by_id { self.differences.saturating_add(largest) } else { self.longest }
    }
}

/// Reads the content of an object. Returns its beginning and its compressed size.
fn inflate(pack: &mut impl BufRead, expected: u64) -> io::Result<(Vec<u8>, u64)> {
    let mut content = ZlibDecoder::new(pack);
    let mut beginning = Vec::new();
    content.by_ref().take(SIZES_BYTES).read_to_end(&mut beginning)?;
    let rest = io::copy(&mut content.by_ref().take(expected + 1), &mut io::sink())?;
    if beginning.len() as u64 + rest != expected {
        return Err(io::Error::other("an object has another size than announced"));
    }
    Ok((beginning, content.total_in()))
}

/// Returns the size of the object that a difference results in.
fn result_size(difference: &[u8]) -> Option<u64> {
    let mut bytes = difference.iter().copied();
    next_size(&mut bytes)?;
    next_size(&mut bytes)
}

/// Reads a size: seven bits per byte, the lowest first.
fn next_size(bytes: &mut impl Iterator<Item = u8>) -> Option<u64> {
    let (mut size, mut shift) = (0, 0);
    for byte in bytes {
        if shift > MAX_SHIFT {
            return None;
        }
        size |= u64::from(byte & 0x7f) << shift;
        shift += 7;
        if byte & 0x80 == 0 {
            return Some(size);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use flate2::{Compression, write::ZlibEncoder};
    use gix_hash::{Kind, ObjectId};
    use gix_pack::data::Version;

    use super::*;

    /// The sizes of a difference between two objects of 1000 bytes.
    const SAME_SIZE: [u8; 4] = [0xe8, 0x07, 0xe8, 0x07];

    struct Pack {
        count: u32,
        objects: Vec<u8>,
    }

    impl Pack {
        fn new() -> Self {
            Self { count: 0, objects: Vec::new() }
        }

        fn offset(&self) -> u64 {
            (header::SIZE + self.objects.len()) as u64
        }

        /// Adds an object. Returns its offset.
        fn add(&mut self, header: Header, content: &[u8]) -> u64 {
            let offset = self.offset();
            header.write_to(content.len() as u64, &mut self.objects).unwrap();
            let mut encoder = ZlibEncoder::new(Vec::new(), Compression::best());
            encoder.write_all(content).unwrap();
            self.objects.extend(encoder.finish().unwrap());
            self.count += 1;
            offset
        }

        /// Adds a difference to the object at an offset.
        fn add_difference(&mut self, base: u64, content: &[u8]) -> u64 {
            self.add(Header::OfsDelta { base_distance: self.offset() - base }, content)
        }

        fn bytes(&self) -> Vec<u8> {
            [&header::encode(Version::V2, self.count)[..], &self.objects].concat()
        }

        fn check(&self) -> Result<(), String> {
            checked(&self.bytes())
        }
    }

    fn checked(mut pack: &[u8]) -> Result<(), String> {
        let limits = GitLimits { objects: 6, object_bytes: 2000, chain_bytes: 3500, ..GitLimits::default() };
        check(&mut pack, &limits, &AtomicBool::new(false))
    }

    /// A pack with a chain of differences.
    fn chain(differences: usize) -> Pack {
        let mut pack = Pack::new();
        let mut last = pack.add(Header::Blob, &[0; 1000]);
        for _ in 0..differences {
            last = pack.add_difference(last, &SAME_SIZE);
        }
        pack
    }

    #[test]
    fn objects_that_need_too_much_memory_together_are_refused() {
        assert_eq!(chain(0).check(), Ok(()));
        assert_eq!(chain(2).check(), Ok(()), "3000 bytes");
        assert!(chain(3).check().unwrap_err().contains("more than 3500 bytes of memory"));
        let mut siblings = Pack::new();
        let base = siblings.add(Header::Blob, &[0; 1000]);
        for _ in 0..5 {
            siblings.add_difference(base, &SAME_SIZE);
        }
        assert_eq!(siblings.check(), Ok(()), "none of them needs another one");
        let mut by_id = Pack::new();
        for expected in [true, false] {
            by_id.add(Header::RefDelta { base_id: ObjectId::null(Kind::Sha1) }, &SAME_SIZE);
            assert_eq!(by_id.check().is_ok(), expected, "each may be a difference to the others");
        }
    }

    #[test]
    fn large_numerous_and_damaged_objects_are_refused() {
        let mut many = Pack::new();
        for _ in 0..7 {
            many.add(Header::Blob, b"a");
        }
        assert!(many.check().unwrap_err().contains("7 objects, more than 6"));
        let mut large = Pack::new();
        large.add(Header::Blob, &[0; 2001]);
        assert!(large.check().unwrap_err().contains("2001 bytes, more than 2000"));
        let mut result = Pack::new();
        let base = result.add(Header::Blob, &[0; 1000]);
        // A few bytes that result in 5000.
        result.add_difference(base, &[0xe8, 0x07, 0x88, 0x27]);
        assert!(result.check().unwrap_err().contains("5000 bytes, more than 2000"));
        let mut endless = Pack::new();
        let base = endless.add(Header::Blob, b"");
        endless.add_difference(base, &[0xff; 30]);
        assert!(endless.check().unwrap_err().contains("size of an object is invalid"));
        let mut dangling = Pack::new();
        dangling.add_difference(1, &SAME_SIZE);
        assert!(dangling.check().unwrap_err().contains("one that does not exist"));
        let bytes = chain(1).bytes();
        for length in [3, header::SIZE, bytes.len() - 1] {
            assert!(checked(&bytes[..length]).is_err(), "{length} bytes");
        }
        assert!(checked(b"no pack at all").is_err());
    }
}
