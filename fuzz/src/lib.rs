//! What all targets are: under a fuzzer, work on the bytes it makes; without one, on the files named on the command line.

#[cfg(fuzzing)]
pub use libfuzzer_sys;

/// Makes a program of some work on bytes. What the work finds is no matter, as long as it does not panic.
#[macro_export]
macro_rules! target {
    ($work:expr) => {
        #[cfg(fuzzing)]
        $crate::libfuzzer_sys::fuzz_target!(|data: &[u8]| {
            let _ = ($work)(data);
        });

        #[cfg(not(fuzzing))]
        fn main() -> std::io::Result<()> {
            $crate::replay(|data| {
                let _ = ($work)(data);
            })
        }
    };
}

/// Works on each of the files: what a fuzzer found, in a build that it was not found in.
pub fn replay(work: impl Fn(&[u8])) -> std::io::Result<()> {
    for path in std::env::args_os().skip(1) {
        let data = std::fs::read(&path)?;
        println!("{}: {} bytes", path.display(), data.len());
        work(&data);
    }
    Ok(())
}
