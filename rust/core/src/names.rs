//! Enumerations whose members have names, as callers pass them and reports print them.

/// An enumeration with `ALL` of its members in order, their `name` and `from_name`.
macro_rules! names {
    ($(#[$doc:meta])* $ty:ident, $n:literal, $($(#[$each:meta])* $variant:ident = $name:literal),+ $(,)?) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(usize)]
        pub enum $ty { $($(#[$each])* $variant),+ }

        impl $ty {
            /// All of them, in order.
            pub const ALL: [Self; $n] = [$(Self::$variant),+];

            /// The name that callers and reports use.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),+ }
            }

            /// The one of that name.
            #[must_use]
            pub fn from_name(name: &str) -> Option<Self> {
                Self::ALL.into_iter().find(|each| each.name() == name)
            }
        }
    };
}
