//! The conversations with a repository. They block, so they run outside of async tasks.

use std::{
    fs::File,
    io::{self, BufRead, BufReader, Seek as _, Write as _},
    num::NonZeroU32,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use chandler_core::source::{Ignore, RemoteRef, RemoteRefs, SelectedRevision};
use gix_error::{ErrorExt as _, message};
use gix_hash::{Kind, ObjectId};
use gix_object::bstr::BString;
use gix_pack::{Bundle, bundle::write};
use gix_protocol::{
    Handshake, LsRefsCommand,
    fetch::{
        Arguments, Context, Negotiate, Options, Response, Shallow, Tags,
        negotiate::{Action, Round, one_round},
    },
    handshake::Ref,
    ls_refs::RefPrefixes,
};
use gix_transport::{Service, client::blocking_io::Transport};
use gix_utils::progress::{Discard, DynNestedProgress};
use tempfile::TempDir;

use super::{commit::GitCommit, connection::Connection, objects::Objects, pack_check, remote::Remote};
use crate::{
    SourceError,
    limits::{GitLimits, TreeLimits},
};

/// The refs that a Source can ask for.
const PREFIXES: [&str; 3] = ["HEAD", "refs/heads/", "refs/tags/"];

/// Lists the branches and tags of a repository.
pub(super) fn list_refs(remote: &Remote) -> Result<RemoteRefs, SourceError> {
    let (mut transport, mut handshake) = open(remote)?;
    // Old servers send all refs at once.
    let refs = if let Some(refs) = handshake.refs.take() {
        refs
    } else {
        let mut prefixes = RefPrefixes::new();
        prefixes.extend(PREFIXES.map(BString::from));
        let command = LsRefsCommand::new(Some(prefixes), &handshake.capabilities, agent());
        let listed = command.invoke_blocking(&mut transport, &mut Discard, false);
        listed.map_err(|error| remote.connection().error(&error))?
    };
    let is_wanted = |one: &RemoteRef| PREFIXES.iter().any(|prefix| one.name.starts_with(prefix));
    Ok(RemoteRefs(refs.into_iter().filter_map(remote_ref).filter(is_wanted).collect()))
}

fn remote_ref(one: Ref) -> Option<RemoteRef> {
    let (name, commit, tag) = match one {
        Ref::Peeled { full_ref_name, tag, object } => (full_ref_name, object, Some(tag)),
        Ref::Direct { full_ref_name, object } => (full_ref_name, object, None),
        Ref::Symbolic { full_ref_name, tag, object, .. } => (full_ref_name, object, tag),
        Ref::Unborn { .. } => return None,
    };
    let tag = tag.map(|tag| tag.to_string());
    Some(RemoteRef { name: name.to_string(), commit: commit.to_string(), tag })
}

/// Fetches one commit.
pub(super) struct Fetch {
    pub remote: Remote,
    pub selected: SelectedRevision,
    pub ignore: Ignore,
    pub limits: GitLimits,
    pub tree: TreeLimits,
    /// Temporary folder of the pack.
    pub folder: TempDir,
    pub interrupt: Arc<AtomicBool>,
}

impl Fetch {
    pub fn run(self) -> Result<GitCommit, SourceError> {
        let wanted = self.selected.tag.as_ref().map_or(&self.selected.id, |tag| &tag.id);
        let wanted = self.id(wanted)?;
        let pack = self.receive(wanted)?;
        let bundle = Bundle::at(pack, Kind::Sha1).map_err(|error| self.connection().error(&error))?;
        // An object that is stored as a difference needs space for its base, for itself and for the differences.
        let mut objects = Objects::new(bundle, self.limits.object_bytes.saturating_mul(3));
        GitCommit::read(&mut objects, &self)
    }

    pub fn connection(&self) -> &Connection {
        self.remote.connection()
    }

    /// Parses the id of an object.
    pub fn id(&self, text: &str) -> Result<ObjectId, SourceError> {
        ObjectId::from_hex(text.as_bytes()).map_err(|error| self.connection().error(&error))
    }

    pub fn unusable(&self, reason: impl Into<String>) -> SourceError {
        SourceError::UnusableRevision {
            url: self.connection().url.to_string(),
            revision: self.selected.id.clone(),
            reason: reason.into(),
        }
    }

    /// Receives the pack of one commit without its history. Returns the path of the pack.
    fn receive(&self, wanted: ObjectId) -> Result<PathBuf, SourceError> {
        let failed = |error: gix_error::Error| self.connection().error(&error);
        let (mut transport, mut handshake) = open(&self.remote)?;
        let mut pack = None;
        let received = gix_protocol::fetch(
            &mut Wanted(wanted),
            |reader, progress, interrupt| {
                pack = self.write(reader, progress, interrupt)?;
                Ok(true)
            },
            Discard,
            &self.interrupt,
            Context {
                handshake: &mut handshake,
                transport: &mut transport,
                user_agent: agent(),
                trace_packetlines: false,
            },
            Options {
                shallow_file: self.folder.path().join("shallow"),
                shallow: &Shallow::DepthAtRemote(NonZeroU32::MIN),
                tags: Tags::None,
                reject_shallow_remote: false,
            },
        );
        received.map_err(failed)?;
        pack.ok_or_else(|| self.unusable("the server sent no objects for it"))
    }

    /// Writes the pack and its index. Every object is hashed, so each has the content that its id stands for.
    fn write(
        &self,
        reader: &mut dyn BufRead,
        progress: &mut dyn DynNestedProgress,
        interrupt: &AtomicBool,
    ) -> gix_error::Result<Option<PathBuf>> {
        let pack = self.receive_checked(reader, interrupt).map_err(|error| {
            self.connection().refuse(error);
            message("the pack is refused").raise()
        })?;
        let options = write::Options {
            thread_limit: Some(1),
            alloc_limit_bytes: Some(self.limits.object_bytes),
            ..write::Options::default()
        };
        let base_objects = None::<gix_object::find::Never>;
        let folder: &Path = self.folder.path();
        let written = Bundle::write_to_directory(
            &mut BufReader::new(pack),
            Some(folder),
            progress,
            interrupt,
            base_objects,
            Kind::Sha1,
            options,
        )?;
        Ok(written.data_path)
    }

    /// Receives the pack into a temporary file, and checks it.
    fn receive_checked(&self, reader: &mut dyn BufRead, interrupt: &AtomicBool) -> Result<File, SourceError> {
        let failed = |error: io::Error| self.connection().broken(error.to_string());
        let mut pack = tempfile::tempfile_in(self.folder.path()).map_err(failed)?;
        copy(reader, &mut pack, interrupt).map_err(failed)?;
        pack.rewind().map_err(failed)?;
        pack_check::check(&mut BufReader::new(&pack), &self.limits, interrupt)
            .map_err(|reason| self.unusable(reason))?;
        pack.rewind().map_err(failed)?;
        Ok(pack)
    }
}

/// Copies everything, until it is interrupted.
fn copy(from: &mut dyn BufRead, to: &mut File, interrupt: &AtomicBool) -> io::Result<()> {
    loop {
        if interrupt.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let chunk = from.fill_buf()?;
        if chunk.is_empty() {
            return Ok(());
        }
        to.write_all(chunk)?;
        let length = chunk.len();
        from.consume(length);
    }
}

/// Opens the conversation.
fn open(remote: &Remote) -> Result<(Box<dyn Transport>, Handshake), SourceError> {
    let connection = remote.connection();
    let mut transport = remote.open()?;
    let handshake = gix_protocol::handshake(
        &mut transport,
        Service::UploadPack,
        // The transport already has the credentials of the Source.
        |_| Ok(None),
        Vec::new(),
        &mut Discard,
    )
    .map_err(|error| connection.error(&error))?;
    let format = handshake.capabilities.capability("object-format").and_then(|format| format.value());
    if let Some(format) = format.filter(|format| AsRef::<[u8]>::as_ref(*format) != b"sha1") {
        let reason = format!("its objects have {format} ids; only repositories with sha1 ids are supported");
        return Err(connection.broken(reason));
    }
    Ok((transport, handshake))
}

fn agent() -> (&'static str, Option<String>) {
    ("agent", Some(gix_protocol::agent(concat!("chandler-", env!("CARGO_PKG_VERSION")))))
}

/// Asks for one object and has none.
struct Wanted(ObjectId);

impl Negotiate for Wanted {
    fn mark_complete_and_common_ref(&mut self) -> gix_error::Result<Action> {
        Ok(Action::MustNegotiate { remote_ref_target_known: vec![false] })
    }

    fn add_wants(&mut self, arguments: &mut Arguments, _known: &[bool]) -> bool {
        arguments.want(self.0);
        true
    }

    fn one_round(
        &mut self,
        _state: &mut one_round::State,
        _arguments: &mut Arguments,
        _previous: Option<&Response>,
    ) -> gix_error::Result<(Round, bool)> {
        let round = Round {
            haves_sent: 0,
            in_vain: 0,
            haves_to_send: 0,
            previous_response_had_at_least_one_in_common: false,
        };
        Ok((round, true))
    }
}
