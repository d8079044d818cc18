//! A stream of SMB packets, cut as its first byte says.
#![cfg_attr(fuzzing, no_main)]

farhaul_fuzz::target!(|data: &[u8]| {
    let (cut, stream) = data.split_first().unwrap_or((&0, data));
    farhaul_optimise::fuzz::stream(stream, usize::from(*cut) * 16)
});
