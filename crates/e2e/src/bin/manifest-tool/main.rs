//! A package tool for plain manifests, with which the tests prove that the contract does not depend on Helm.
//!
//! `manifest-tool --socket PATH` serves the contract. `manifest-tool pack` packs a test package of the conformance suite.

mod cluster;
mod dial;
mod failure;
mod lease;
mod objects;
mod operation;
mod package;
mod records;
mod release;
mod running;
mod service;
mod values;

/// Code generated from `proto/`.
#[allow(clippy::pedantic, unused_qualifications, reason = "generated code is not written by hand")]
mod generated {
    include!("generated/chandler.tool.v1.rs");
}

use std::{
    error::Error,
    io::{BufRead as _, Read as _, Write as _},
    path::{Path, PathBuf},
    process::ExitCode,
};

use serde_json::json;
use tokio::{
    net::UnixListener,
    signal::unix::{SignalKind, signal},
};
use tokio_stream::wrappers::UnixListenerStream;

use self::{
    generated::package_tool_server::PackageToolServer, lease::Lease, package::Package, service::Service,
};

/// Largest message in either direction.
const MESSAGE_LIMIT: usize = 64 << 20;

type Result<T, E = Box<dyn Error>> = std::result::Result<T, E>;

enum Command {
    Serve { socket: PathBuf },
    Pack,
}

fn main() -> ExitCode {
    let result = command(std::env::args().skip(1)).and_then(|command| match command {
        Command::Serve { socket } => serve(&socket),
        Command::Pack => pack(),
    });
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("manifest-tool: {error}");
            ExitCode::FAILURE
        }
    }
}

fn command(mut arguments: impl Iterator<Item = String>) -> Result<Command> {
    let mut socket = None;
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "pack" => return Ok(Command::Pack),
            "--socket" => socket = arguments.next(),
            // The process stays small.
            "--memory-limit" => drop(arguments.next()),
            other => return Err(format!("unknown argument {other}").into()),
        }
    }
    let socket = socket.ok_or("--socket PATH is missing")?;
    Ok(Command::Serve { socket: socket.into() })
}

/// Reads a test package from standard input and writes the package to standard output.
fn pack() -> Result<()> {
    let mut input = Vec::new();
    std::io::stdin().read_to_end(&mut input)?;
    let package: Package = serde_json::from_slice(&input)?;
    std::io::stdout().write_all(&serde_json::to_vec(&package)?)?;
    Ok(())
}

#[tokio::main]
async fn serve(socket: &Path) -> Result<()> {
    // Fails only if a provider is installed already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let listener = UnixListener::bind(socket)?;
    let lease = Lease::default();
    let service = PackageToolServer::new(Service::new(lease.clone()))
        .max_decoding_message_size(MESSAGE_LIMIT)
        .max_encoding_message_size(MESSAGE_LIMIT);
    log("info", json!({"msg": "serving"}));
    std::thread::spawn(move || exit_with_owner(&lease));
    let mut terminate = signal(SignalKind::terminate())?;
    tonic::transport::Server::builder()
        .add_service(service)
        .serve_with_incoming_shutdown(UnixListenerStream::new(listener), async move {
            terminate.recv().await;
        })
        .await?;
    Ok(())
}

/// Executes the lines on standard input, and exits when it closes.
fn exit_with_owner(lease: &Lease) {
    for line in std::io::stdin().lock().lines() {
        match line {
            Ok(line) => lease.execute(&line),
            Err(_) => std::process::exit(1),
        }
    }
    std::process::exit(0);
}

/// Writes a JSON line to standard error.
fn log(level: &str, mut fields: serde_json::Value) {
    fields["level"] = level.into();
    eprintln!("{fields}");
}
