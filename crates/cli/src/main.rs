//! The `chandler` binary: `chandler --help`.

fn main() {}
