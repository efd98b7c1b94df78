//! The output and input of `git-upload-pack`, for blocking readers and writers.

use std::{
    io::{self, Read, Write},
    sync::Arc,
    time::Duration,
};

use bytes::{Buf as _, Bytes};
use russh::{
    ChannelMsg, ChannelReadHalf, ChannelWriteHalf,
    client::{Handle, Msg},
};

use super::HostKeyCheck;
use crate::{SourceError, git::connection::Connection};

/// Limit of what is kept of the messages of the server, in bytes.
const MESSAGE_BYTES: usize = 300;

/// Reads the output.
pub(in crate::git) struct SshReader {
    connection: Arc<Connection>,
    /// Limit of the time between two messages.
    timeout: Duration,
    channel: ChannelReadHalf,
    /// The connection ends when it is dropped.
    _session: Handle<HostKeyCheck>,
    chunk: Bytes,
    received: u64,
    /// The beginning of what the server wrote to the standard error.
    message: Vec<u8>,
    exit_status: Option<u32>,
}

impl SshReader {
    pub(super) fn new(
        connection: Arc<Connection>,
        timeout: Duration,
        channel: ChannelReadHalf,
        session: Handle<HostKeyCheck>,
    ) -> Self {
        Self {
            connection,
            timeout,
            channel,
            _session: session,
            chunk: Bytes::new(),
            received: 0,
            message: Vec::new(),
            exit_status: None,
        }
    }

    /// Returns the next chunk of the output. `None` means that the program has ended without an error.
    fn next(&mut self) -> Result<Option<Bytes>, SourceError> {
        loop {
            let Self { connection, channel, timeout, .. } = self;
            let message = connection.within(*timeout, async { Ok(channel.wait().await) });
            match connection.block_on(message)? {
                Some(ChannelMsg::Data { data }) => {
                    self.count(&data)?;
                    return Ok(Some(data));
                }
                Some(ChannelMsg::ExtendedData { data, .. }) => {
                    self.count(&data)?;
                    let space = MESSAGE_BYTES.saturating_sub(self.message.len());
                    self.message.extend(data.iter().take(space));
                }
                Some(ChannelMsg::ExitStatus { exit_status }) => self.exit_status = Some(exit_status),
                Some(ChannelMsg::Failure) => {
                    return Err(self
                        .connection
                        .broken("the server does not let the user run git-upload-pack"));
                }
                Some(ChannelMsg::Close) | None if self.exit_status == Some(0) => return Ok(None),
                Some(ChannelMsg::Close) | None => return Err(self.ended()),
                Some(_) => {}
            }
        }
    }

    fn count(&mut self, data: &Bytes) -> Result<(), SourceError> {
        self.received += data.len() as u64;
        self.connection.check_size(self.received)
    }

    fn ended(&self) -> SourceError {
        let output = printable(&self.message);
        let output = if output.is_empty() { output } else { format!(" and wrote {output:?}") };
        self.connection.broken(format!(
            "the server ended the connection{output}; check the path in the URL, and whether the key may read the repository"
        ))
    }
}

impl Read for SshReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.chunk.is_empty() {
            match self.next().map_err(|error| self.connection.fail(error))? {
                Some(chunk) => self.chunk = chunk,
                None => return Ok(0),
            }
        }
        let length = self.chunk.len().min(buffer.len());
        self.chunk.copy_to_slice(&mut buffer[..length]);
        Ok(length)
    }
}

/// Writes the input.
pub(in crate::git) struct SshWriter {
    connection: Arc<Connection>,
    /// Limit of the time until the server accepts the input.
    timeout: Duration,
    channel: ChannelWriteHalf<Msg>,
}

impl SshWriter {
    pub(super) fn new(
        connection: Arc<Connection>,
        timeout: Duration,
        channel: ChannelWriteHalf<Msg>,
    ) -> Self {
        Self { connection, timeout, channel }
    }
}

impl Write for SshWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Self { connection, timeout, channel } = self;
        let data = Bytes::copy_from_slice(bytes);
        let sent = async {
            channel.data_bytes(data).await.map_err(|_| connection.broken("the server ended the connection"))
        };
        connection.block_on(connection.within(*timeout, sent)).map_err(|error| connection.fail(error))?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns the text of the server on one line, without characters that a terminal would act upon.
fn printable(message: &[u8]) -> String {
    let text = String::from_utf8_lossy(message);
    let words = text.split(|character: char| character.is_whitespace() || character.is_control());
    words.filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_the_server_are_one_printable_line() {
        assert_eq!(printable(b"\x1b[31mERROR:\r\n\tnot  found\0\n"), "[31mERROR: not found");
        assert_eq!(printable(b"\n"), "");
    }
}
