//! Keeping the processors awake while something is timed.
//!
//! A processor with nothing to do sleeps, and waking it takes tens of microseconds on a server and
//! more in a virtual machine. A link that is crossed now and then then looks that much longer.
//! See `docs/design/awake.md`.

use std::fs::File;
use std::io::{self, Write};

/// The kernel's interface for "no processor may take longer than this to wake" (PM QoS,
/// `Documentation/power/pm_qos_interface.rst`); holds as long as it is open.
const DEVICE: &str = "/dev/cpu_dma_latency";

/// Processors do not sleep as long as this lives, whatever they have to do.
#[derive(Debug)]
pub struct Awake {
    _device: File,
}

impl Awake {
    /// Asks the kernel for it; needs root, and a kernel with PM QoS.
    pub fn keep() -> io::Result<Self> {
        let mut device = File::options().write(true).open(DEVICE)?;
        let latency_us: i32 = 0;
        device.write_all(&latency_us.to_ne_bytes())?;
        Ok(Self { _device: device })
    }
}
