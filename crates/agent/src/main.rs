//! The `chandler-agent` binary. See `chandler-agent --help`.

use std::{
    io::{self, Write as _},
    process::ExitCode,
};

use chandler_agent::{
    Agent, Settings,
    arguments::{self, Arguments, HELP, LogFormat, RunArguments},
};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing::Level;

/// The exit code of a command line that cannot be used.
const USAGE: u8 = 2;

fn main() -> ExitCode {
    match arguments::parse(std::env::args_os().skip(1)) {
        Ok(Arguments::Help) => print(HELP),
        Ok(Arguments::Version) => print(concat!("chandler-agent ", env!("CARGO_PKG_VERSION"), "\n")),
        Ok(Arguments::Run(arguments)) => match run(&arguments) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => fail(error.as_ref(), ExitCode::FAILURE),
        },
        Err(error) => fail(&error, USAGE.into()),
    }
}

fn run(arguments: &RunArguments) -> Result<(), Box<dyn std::error::Error>> {
    let RunArguments { config, log_format, verbose } = arguments;
    start_log(*log_format, *verbose);
    let agent = Agent::new(Settings::load(config)?)?;
    // One thread is enough for one cluster, and takes less memory.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let stop = CancellationToken::new();
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let stopped = stop.clone();
        tokio::spawn(async move {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            tracing::info!("stopping: open connections may end until the deadline");
            stopped.cancel();
        });
        agent.run(stop).await;
        Ok(())
    })
}

fn start_log(format: LogFormat, verbose: bool) {
    let level = if verbose { Level::DEBUG } else { Level::INFO };
    let log = tracing_subscriber::fmt().with_max_level(level).with_target(false).with_writer(io::stderr);
    match format {
        LogFormat::Plain => log.with_ansi(false).init(),
        LogFormat::Json => log.json().init(),
    }
}

fn print(text: &str) -> ExitCode {
    match io::stdout().write_all(text.as_bytes()) {
        Ok(()) => ExitCode::SUCCESS,
        // A reader that has closed the pipe, such as `head`, has seen enough.
        Err(_) => ExitCode::FAILURE,
    }
}

fn fail(error: &dyn std::error::Error, code: ExitCode) -> ExitCode {
    // There is nothing left to do if standard error is closed.
    let _ = writeln!(io::stderr(), "chandler-agent: {error}");
    code
}
