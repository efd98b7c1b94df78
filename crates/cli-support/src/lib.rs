//! Code that the binaries `chandler` and `chandler-sandbox` share.

pub mod programs;
pub mod user_dirs;

use std::process::ExitCode;

use anyhow::Result;
use clap::CommandFactory;
use clap_complete::Shell;

/// Runs a program. Installs the default TLS crypto provider and prints an error to standard error.
pub fn main(run: impl FnOnce() -> Result<ExitCode>) -> ExitCode {
    // This fails only if a provider is installed already, which nothing does before this point.
    let _ = rustls::crypto::ring::default_provider().install_default();
    match run() {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {}", error_text(&error));
            ExitCode::FAILURE
        }
    }
}

/// Returns the error and its causes, without causes whose text an outer error already contains.
pub fn error_text(error: &anyhow::Error) -> String {
    error.chain().map(ToString::to_string).fold(String::new(), |text, cause| {
        if text.is_empty() {
            cause
        } else if text.contains(&cause) {
            text
        } else {
            format!("{text}: {cause}")
        }
    })
}

pub fn runtime() -> Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_multi_thread().enable_all().build()?)
}

/// Prints a completion script.
pub fn print_completion<C: CommandFactory>(shell: Shell) {
    let mut command = C::command();
    let name = command.get_name().to_owned();
    clap_complete::generate(shell, &mut command, name, &mut std::io::stdout());
}

/// Returns the reference of all commands as Markdown.
pub fn reference<C: CommandFactory>() -> String {
    clap_markdown::help_markdown_custom::<C>(&clap_markdown::MarkdownOptions::new().show_footer(false))
}
