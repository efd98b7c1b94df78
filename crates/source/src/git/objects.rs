//! Reads the objects of a pack.

use gix_hash::oid;
use gix_object::Kind;
use gix_pack::{Bundle, cache::Never, data::decode::header::ResolvedBase};

/// The objects of a pack, by id.
pub(super) struct Objects {
    bundle: Bundle,
    inflate: gix_zlib::Inflate,
    buffer: Vec<u8>,
}

impl Objects {
    /// Creates a reader that refuses to allocate more than `largest` bytes while it reads an object.
    pub fn new(bundle: Bundle, largest: usize) -> Self {
        let Bundle { pack, index } = bundle;
        let bundle = Bundle { pack: pack.with_alloc_limit_bytes(Some(largest)), index };
        Self { bundle, inflate: gix_zlib::Inflate::default(), buffer: Vec::new() }
    }

    /// Returns the size of an object without reading it. `None` means that the pack does not contain it.
    pub fn size(&mut self, id: &oid) -> gix_error::Result<Option<u64>> {
        let Bundle { pack, index } = &self.bundle;
        let Some(at) = index.lookup(id) else { return Ok(None) };
        let base = |id: &oid| -> gix_error::Result<Option<ResolvedBase>> {
            let Some(at) = index.lookup(id) else { return Ok(None) };
            Ok(Some(ResolvedBase::InPack(pack.entry(index.pack_offset_at_index(at))?)))
        };
        let entry = pack.entry(index.pack_offset_at_index(at))?;
        Ok(Some(pack.decode_header(entry, &mut self.inflate, &base)?.object_size))
    }

    /// Returns the kind and the content of an object. `None` means that the pack does not contain it.
    pub fn read(&mut self, id: &oid) -> gix_error::Result<Option<(Kind, &[u8])>> {
        let found = self.bundle.find(id, &mut self.buffer, &mut self.inflate, &mut Never)?;
        Ok(found.map(|(object, _)| (object.kind, object.data)))
    }
}
