//! Windows, limits and times of an HTTP/2 connection.

use std::time::Duration;

use h2::{client, server};

/// How many connections to the API server a tunnel connection carries at once.
pub const MAX_STREAMS: u32 = 128;
/// How many connections one hub forwards to another at once.
pub const MAX_PEER_STREAMS: u32 = 4096;
/// The flow-control window of a stream, in bytes: as much as 160 Mbit/s need at a round trip of 50 ms.
pub const STREAM_WINDOW: u32 = 1024 * 1024;

/// Streams for requests beside `CONNECT`, which have no slot of their own.
const CONTROL_STREAMS: u32 = 8;
/// The largest window that HTTP/2 allows.
const MAX_WINDOW: u32 = (1 << 31) - 1;
/// How many bytes h2 may spend on small frames of a connection that a pump has not taken yet. h2 closes a connection that
/// needs more; pumps take frames at once, even if they cannot write them on.
const SMALL_FRAME_BYTES: usize = 16 * 1024 * 1024;
/// How many reset streams are remembered, and for how long: data that were on the way are then ignored. h2 takes data on a
/// stream that it has forgotten for an error, and closes a connection with too many of them.
const MAX_RESET_STREAMS: usize = 1024;
const RESET_MEMORY: Duration = Duration::from_secs(30);
/// The largest list of headers, in bytes.
const MAX_HEADER_BYTES: u32 = 8 * 1024;

/// Windows, limits and times of a connection. Both sides use the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    pub max_streams: u32,
    pub stream_window: u32,
    /// How often a ping is sent.
    pub ping_interval: Duration,
    /// A connection on which nothing arrives for this time after a ping is dead.
    pub ping_timeout: Duration,
    /// How long the streams of a connection may continue after GOAWAY.
    pub drain_timeout: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self::tunnel()
    }
}

impl Settings {
    /// Returns the settings between hub and agent.
    pub fn tunnel() -> Self {
        Self {
            max_streams: MAX_STREAMS,
            stream_window: STREAM_WINDOW,
            ping_interval: Duration::from_secs(15),
            ping_timeout: Duration::from_secs(10),
            drain_timeout: Duration::from_secs(30),
        }
    }

    /// Returns the settings between two hubs.
    pub fn peer() -> Self {
        Self { max_streams: MAX_PEER_STREAMS, ..Self::tunnel() }
    }

    /// Returns the window of the connection: all streams together, so that stalled streams leave room for the others.
    pub fn connection_window(&self) -> u32 {
        self.stream_window.saturating_mul(self.max_streams).min(MAX_WINDOW)
    }

    pub(super) fn client(&self) -> client::Builder {
        let mut builder = client::Builder::new();
        builder
            .initial_window_size(self.stream_window)
            .initial_connection_window_size(self.connection_window())
            .max_send_buffer_size(self.stream_window as usize)
            .max_header_list_size(MAX_HEADER_BYTES)
            .data_frame_budget(SMALL_FRAME_BYTES)
            .max_concurrent_reset_streams(MAX_RESET_STREAMS)
            .reset_stream_duration(RESET_MEMORY)
            .max_concurrent_streams(0)
            .enable_push(false);
        builder
    }

    pub(super) fn server(&self) -> server::Builder {
        let mut builder = server::Builder::new();
        builder
            .initial_window_size(self.stream_window)
            .initial_connection_window_size(self.connection_window())
            .max_send_buffer_size(self.stream_window as usize)
            .max_header_list_size(MAX_HEADER_BYTES)
            .data_frame_budget(SMALL_FRAME_BYTES)
            .max_concurrent_reset_streams(MAX_RESET_STREAMS)
            .reset_stream_duration(RESET_MEMORY)
            .max_concurrent_streams(self.max_streams.saturating_add(CONTROL_STREAMS));
        builder
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connection_window_holds_the_windows_of_all_streams() {
        assert_eq!(Settings::tunnel().connection_window(), 128 * 1024 * 1024);
        let small = Settings { stream_window: 64 * 1024, ..Settings::peer() };
        assert_eq!(small.connection_window(), 4096 * 64 * 1024);
        assert_eq!(Settings::peer().connection_window(), MAX_WINDOW);
    }
}
