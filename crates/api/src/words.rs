//! Enums whose variants are stored as words.

/// Defines an enum whose variants are stored as words, with `ALL`, `as_str` and `Display`. One list gives all of them, so a
/// test that walks over `ALL` misses no variant.
macro_rules! words {
    (
        $(#[$meta:meta])*
        pub enum $name:ident { $($(#[$doc:meta])* $variant:ident = $word:literal,)+ }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $name { $($(#[$doc])* $variant,)+ }

        impl $name {
            /// Every variant.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// The stored word. Stable: status, Events and metric labels contain it.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word,)+ }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}

pub(crate) use words;
