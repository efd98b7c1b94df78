//! Enums whose variants are stored as strings.

/// Defines an enum whose variants are stored as strings, with `ALL`, `as_str` and `Display`. All three are generated from one
/// list, so a test that iterates over `ALL` covers every variant.
macro_rules! string_enum {
    (
        $(#[$meta:meta])*
        pub enum $name:ident { $($(#[$doc:meta])* $variant:ident = $string:literal,)+ }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $name { $($(#[$doc])* $variant,)+ }

        impl $name {
            /// Every variant.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// Returns the stored string. It is stable: status, Events and metric labels contain it.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $string,)+ }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}

pub(crate) use string_enum;
