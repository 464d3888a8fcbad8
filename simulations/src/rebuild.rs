//! How this executable was built, and how to get one with planted bugs.

use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::Context as _;

/// Runs this command again in a build with the planted bugs, and returns its exit code.
pub(crate) fn run_with_planted_bugs() -> anyhow::Result<ExitCode> {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    eprintln!("this build has no planted bugs: building one that has, and running it");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(cargo)
        .args(["run", "--profile", &cargo_profile()])
        .args(["--manifest-path", concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")])
        .args(["--features", "planted", "--"])
        .args(arguments)
        .status()
        .context("cargo, which builds the planted bugs, could not be started")?;
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    Ok(ExitCode::from(code.unwrap_or(1)))
}

/// The command line that runs this tool with these arguments, in the profile of this build.
pub(crate) fn command_line(arguments: &str) -> String {
    let profile = match cargo_profile().as_str() {
        "dev" => String::new(),
        "release" => " --release".to_owned(),
        other => format!(" --profile {other}"),
    };
    format!("cargo run{profile} -p simulations -- {arguments}")
}

fn cargo_profile() -> String {
    std::env::current_exe().map_or_else(|_| "dev".to_owned(), |path| profile_of(&path))
}

/// The profile that cargo built an executable with, which is its folder's name.
fn profile_of(executable: &Path) -> String {
    let mut folders = executable.ancestors().skip(1).filter_map(Path::file_name);
    let folder = folders.find(|&name| name != "deps" && name != "examples");
    match folder.and_then(|name| name.to_str()) {
        None | Some("debug") => "dev".to_owned(),
        Some(name) => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_names_the_profile() {
        let profiles = [
            ("/w/target/debug/simulations", "dev"),
            ("/w/target/debug/deps/simulations-0a1b", "dev"),
            ("/w/target/release/simulations", "release"),
            ("target/sim/simulations", "sim"),
            ("simulations", "dev"),
        ];
        for (path, profile) in profiles {
            assert_eq!(profile_of(Path::new(path)), profile, "{path}");
        }
    }

    #[test]
    fn commands_are_those_of_this_build() {
        let line = command_line("replay a.json");
        assert!(line.starts_with("cargo run"), "{line}");
        assert!(line.ends_with(" -p simulations -- replay a.json"), "{line}");
    }
}
