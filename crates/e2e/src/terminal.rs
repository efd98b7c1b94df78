//! Commands on a terminal.

use std::{
    fs::File,
    io::Read as _,
    os::fd::OwnedFd,
    process::{Child, Command, Stdio},
};

use rustix::{
    fs::{Mode, OFlags},
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
    termios::{Winsize, tcsetwinsize},
};

const SIZE: Winsize = Winsize { ws_row: 40, ws_col: 160, ws_xpixel: 0, ws_ypixel: 0 };

/// A command whose standard output and error are a terminal. It is killed when this is dropped.
pub struct OnTerminal {
    child: Child,
    terminal: File,
    printed: Vec<u8>,
}

impl OnTerminal {
    pub fn spawn(mut command: Command) -> Self {
        let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&terminal).unwrap();
        unlockpt(&terminal).unwrap();
        tcsetwinsize(&terminal, SIZE).unwrap();
        let name = ptsname(&terminal, Vec::new()).unwrap();
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let other_end: OwnedFd = rustix::fs::open(name, flags, Mode::empty()).unwrap();
        command.stdin(Stdio::null()).stdout(other_end.try_clone().unwrap()).stderr(other_end);
        let child = command.spawn().unwrap();
        // The command has the only copies of the other end, so that reading ends with it.
        drop(command);
        Self { child, terminal: File::from(terminal), printed: Vec::new() }
    }

    /// Reads until the command has printed a text. Fails if it ends before.
    pub fn wait_for(&mut self, text: &str) {
        while !self.printed().contains(text) {
            assert!(self.read(), "{text:?} was not printed: {:?}", self.printed());
        }
    }

    /// Waits until the command ends. Returns its exit code and all that it has printed.
    pub fn wait(mut self) -> (i32, String) {
        while self.read() {}
        let code = self.child.wait().unwrap().code().unwrap();
        (code, self.printed())
    }

    /// Reads some of what was printed. Returns whether the terminal is still open.
    fn read(&mut self) -> bool {
        let mut buffer = [0; 4096];
        // Linux reports an error when the other end is closed.
        let count = self.terminal.read(&mut buffer).unwrap_or_default();
        self.printed.extend(&buffer[..count]);
        count > 0
    }

    fn printed(&self) -> String {
        String::from_utf8_lossy(&self.printed).replace("\r\n", "\n")
    }
}

impl Drop for OnTerminal {
    fn drop(&mut self) {
        // Both fail if it has ended, which is no problem.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
