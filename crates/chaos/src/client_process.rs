//! Finds the process at the other end of a local connection, and encodes process IDs as loopback addresses.
//!
//! The proxies connect to the API servers from these addresses, so that the audit logs show which process has sent a
//! request.

use std::{fs, net::Ipv4Addr};

/// Only processes whose names begin with this are searched: managers and drivers.
const NAME_PREFIX: &str = "chandler";

/// Returns the address of the process that has opened the connection between two ports of this machine. Blocks for some
/// milliseconds.
pub fn address_of_client(client_port: u16, server_port: u16) -> Ipv4Addr {
    address_of_process(client_process(client_port, server_port))
}

/// Returns the address `127.a.b.c` in which the last three bytes are the process ID, or `127.0.0.1` if there is none.
fn address_of_process(process: Option<u32>) -> Ipv4Addr {
    match process.map(u32::to_be_bytes) {
        Some([0, a, b, c]) if [a, b, c] != [0, 0, 0] => Ipv4Addr::new(127, a, b, c),
        _ => Ipv4Addr::LOCALHOST,
    }
}

/// Returns the process ID in an address of [`address_of_process`].
pub fn process_of_address(address: &str) -> Option<u32> {
    let address: Ipv4Addr = address.parse().ok()?;
    let [127, a, b, c] = address.octets() else { return None };
    (address != Ipv4Addr::LOCALHOST).then(|| u32::from_be_bytes([0, a, b, c]))
}

fn client_process(client_port: u16, server_port: u16) -> Option<u32> {
    let table = fs::read_to_string("/proc/net/tcp").ok()?;
    let inode = inode(&table, client_port, server_port)?;
    let link = format!("socket:[{inode}]");
    let processes = fs::read_dir("/proc").ok()?.flatten();
    processes
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|pid: &u32| is_searched(*pid))
        .find(|pid| has_file(*pid, &link))
}

fn is_searched(pid: u32) -> bool {
    let name = fs::read_to_string(format!("/proc/{pid}/comm"));
    name.is_ok_and(|name| name.starts_with(NAME_PREFIX)) && pid != std::process::id()
}

fn has_file(pid: u32, link: &str) -> bool {
    let mut files = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    files.any(|file| fs::read_link(file.path()).is_ok_and(|target| target.to_str() == Some(link)))
}

/// Returns the inode of the client's socket from the content of `/proc/net/tcp`.
fn inode(table: &str, client_port: u16, server_port: u16) -> Option<&str> {
    let port = |address: &str| u16::from_str_radix(address.rsplit_once(':')?.1, 16).ok();
    table.lines().skip(1).find_map(|line| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let (local, remote) = (port(fields.get(1)?)?, port(fields.get(2)?)?);
        (local == client_port && remote == server_port).then(|| fields.get(9).copied()).flatten()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 11 1 0 100 0 0 10 0
   1: 0100007F:C350 0100007F:1F90 01 00000000:00000000 00:00000000 00000000     0        0 22 1 0 20 4 30 10 -1
   2: 0100007F:1F90 0100007F:C350 01 00000000:00000000 00:00000000 00000000     0        0 33 1 0 20 4 30 10 -1
";

    #[test]
    fn the_socket_of_the_client_is_found() {
        assert_eq!(inode(TABLE, 50_000, 8080), Some("22"));
        assert_eq!(inode(TABLE, 8080, 50_000), Some("33"));
        assert_eq!(inode(TABLE, 50_001, 8080), None);
        assert_eq!(inode("", 1, 2), None);
    }

    #[test]
    fn addresses_contain_process_ids() {
        for pid in [2, 255, 256, 77_123, 4_194_304] {
            let address = address_of_process(Some(pid));
            assert!(address.is_loopback());
            assert_eq!(process_of_address(&address.to_string()), Some(pid), "{address}");
        }
        assert_eq!(address_of_process(None), Ipv4Addr::LOCALHOST);
        assert_eq!(process_of_address("127.0.0.1"), None);
        assert_eq!(process_of_address("::1"), None);
    }
}
