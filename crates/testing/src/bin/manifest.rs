//! `manifest DIRECTORY` prints the manifest of a mounted tree, for the scripts that make golden images.

use std::path::PathBuf;
use std::process::ExitCode;

use brindle_testing::manifest::Manifest;

fn main() -> ExitCode {
    let Some(root) = std::env::args_os().nth(1).map(PathBuf::from) else {
        eprintln!("usage: manifest DIRECTORY");
        return ExitCode::from(2);
    };
    match Manifest::of_directory(&root) {
        Ok(manifest) => {
            print!("{manifest}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("manifest: {error}");
            ExitCode::FAILURE
        }
    }
}
