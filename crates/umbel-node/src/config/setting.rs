//! A setting: its name, meaning and type; and a macro that declares a struct of settings.

/// One setting as users see it: in a file, in the environment, in help texts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Setting {
    /// The name in files; in the environment it is in upper case with the prefix `UMBEL_`.
    pub name: &'static str,
    /// The description: one or more lines, each with a leading blank.
    pub doc: &'static str,
    /// The type of the value.
    pub kind: SettingKind,
}

impl Setting {
    /// The lines of the description, without surrounding blanks.
    ///
    /// ```
    /// let listen = umbel_node::Config::setting("listen").expect("it is a setting");
    /// assert!(listen.lines().next().is_some_and(|line| line.starts_with("Where to listen")));
    /// ```
    pub fn lines(&self) -> impl Iterator<Item = &'static str> {
        self.doc.lines().map(str::trim)
    }

    /// The environment variable that sets it.
    ///
    /// ```
    /// let listen = umbel_node::Config::setting("listen").expect("it is a setting");
    /// assert_eq!(listen.variable(), "UMBEL_LISTEN");
    /// ```
    #[must_use]
    pub fn variable(&self) -> String {
        format!("UMBEL_{}", self.name.to_ascii_uppercase())
    }
}

/// The type of a setting's value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SettingKind {
    /// A text.
    Text,
    /// Several texts; separated by commas in the environment.
    Texts,
    /// A whole number.
    Number,
    /// `true` or `false`.
    Switch,
}

/// A type that a setting can have.
pub trait SettingValue {
    /// The kind of its values.
    const KIND: SettingKind;
}

impl SettingValue for String {
    const KIND: SettingKind = SettingKind::Text;
}

impl SettingValue for Option<String> {
    const KIND: SettingKind = SettingKind::Text;
}

impl SettingValue for Vec<String> {
    const KIND: SettingKind = SettingKind::Texts;
}

impl SettingValue for u32 {
    const KIND: SettingKind = SettingKind::Number;
}

impl SettingValue for u64 {
    const KIND: SettingKind = SettingKind::Number;
}

impl SettingValue for bool {
    const KIND: SettingKind = SettingKind::Switch;
}

/// Declares a struct of settings with their defaults, and a table of their descriptions, from one list.
///
/// ```
/// umbel_node::settings! {
///     /// Settings of an example.
///     pub struct Example {
///         /// How many, from 1.
///         count: u32 = 3,
///     }
/// }
/// assert_eq!(Example::default().count, 3);
/// assert_eq!(Example::SETTINGS[0].lines().next(), Some("How many, from 1."));
/// ```
#[macro_export]
macro_rules! settings {
    (
        $(#[$outer:meta])*
        $visibility:vis struct $struct:ident {
            $($(#[doc = $doc:literal])+ $name:ident: $type:ty = $default:expr,)+
        }
    ) => {
        $(#[$outer])*
        #[derive(Clone, PartialEq, Eq, Debug, ::serde::Serialize, ::serde::Deserialize)]
        #[serde(default, deny_unknown_fields)]
        $visibility struct $struct {
            $($(#[doc = $doc])+ pub $name: $type,)+
        }

        impl Default for $struct {
            fn default() -> Self {
                Self { $($name: $default,)+ }
            }
        }

        impl $struct {
            /// All settings in the order in which they are printed.
            $visibility const SETTINGS: &'static [$crate::config::Setting] = &[
                $($crate::config::Setting {
                    name: stringify!($name),
                    doc: concat!($($doc, "\n"),+),
                    kind: <$type as $crate::config::SettingValue>::KIND,
                },)+
            ];

            /// The description of the setting with this name.
            #[must_use]
            $visibility fn setting(name: &str) -> Option<&'static $crate::config::Setting> {
                Self::SETTINGS.iter().find(|setting| setting.name == name)
            }
        }
    };
}
