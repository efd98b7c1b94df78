//! What one tenant cannot do to others. Each test runs attacks on real API servers.

mod shared_sources;
