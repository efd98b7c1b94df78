//! What the images contain. They have no base image, and no shell.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

/// The user and group that the programs run as, and that own the folders they write to.
pub const USER: u32 = 65532;
/// Where the TLS library looks for the certificate authorities of the system.
pub const CERTIFICATES: &str = "etc/ssl/certs/ca-certificates.crt";

/// An image.
#[derive(Debug)]
pub struct Image {
    pub name: &'static str,
    /// What is appended to the repository of Chandler.
    pub suffix: &'static str,
    pub description: &'static str,
    /// Programs in the root folder. The first one is the entry point.
    pub programs: &'static [&'static str],
    /// Folders that belong to [`USER`], for what is written where no volumes are mounted.
    writable: &'static [&'static str],
    /// Sources without an authority of their own are trusted by those of the web.
    has_certificates: bool,
}

/// The images of a release. The chart refers to both.
pub const IMAGES: [Image; 2] = [
    Image {
        name: "chandler",
        suffix: "",
        description: "Installs, upgrades and removes the add-ons of Cluster API clusters",
        programs: &["chandler", "chandler-helm"],
        writable: &["tmp", "var/cache/chandler"],
        has_certificates: true,
    },
    Image {
        name: "chandler-agent",
        suffix: "-agent",
        description: "Connects a cluster behind NAT to Chandler",
        programs: &["chandler-agent"],
        writable: &["var/lib/chandler-agent"],
        has_certificates: false,
    },
];

/// A file or folder of an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    Folder { owner: u32 },
    File { source: PathBuf, mode: u32 },
}

impl Image {
    /// Returns the path of the program that a container starts.
    pub fn entrypoint(&self) -> String {
        format!("/{}", self.programs[0])
    }

    /// Returns all files and folders by path. A folder sorts before what it contains.
    pub fn files(&self, programs: &Path, certificates: &Path) -> BTreeMap<String, Entry> {
        let mut entries = BTreeMap::new();
        for program in self.programs {
            let file = Entry::File { source: programs.join(program), mode: 0o755 };
            entries.insert((*program).to_owned(), file);
        }
        if self.has_certificates {
            let file = Entry::File { source: certificates.to_owned(), mode: 0o644 };
            entries.insert(CERTIFICATES.to_owned(), file);
        }
        for folder in self.writable {
            entries.insert((*folder).to_owned(), Entry::Folder { owner: USER });
        }
        let parents: Vec<String> = entries.keys().flat_map(|path| parents(path)).collect();
        for parent in parents {
            entries.entry(parent).or_insert(Entry::Folder { owner: 0 });
        }
        entries
    }
}

fn parents(path: &str) -> impl Iterator<Item = String> {
    path.match_indices('/').map(|(at, _)| path[..at].to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_images_contain_programs_and_the_folders_they_write_to() {
        let [chandler, agent] = &IMAGES;
        assert_eq!(
            (chandler.entrypoint(), agent.entrypoint()),
            ("/chandler".into(), "/chandler-agent".into())
        );
        let files = chandler.files(Path::new("/bin"), Path::new("/certificates"));
        let paths = [
            "chandler",
            "chandler-helm",
            "etc",
            "etc/ssl",
            "etc/ssl/certs",
            CERTIFICATES,
            "tmp",
            "var",
            "var/cache",
            "var/cache/chandler",
        ];
        assert_eq!(files.keys().collect::<Vec<_>>(), paths);
        assert_eq!(files["chandler"], Entry::File { source: "/bin/chandler".into(), mode: 0o755 });
        for (path, owner) in [("tmp", USER), ("var", 0), ("var/cache", 0), ("var/cache/chandler", USER)] {
            assert_eq!(files[path], Entry::Folder { owner }, "{path}");
        }
        let agent = agent.files(Path::new("/bin"), Path::new("/certificates"));
        assert_eq!(
            agent.keys().collect::<Vec<_>>(),
            ["chandler-agent", "var", "var/lib", "var/lib/chandler-agent"]
        );
    }
}
