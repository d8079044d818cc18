//! The accelerator at one site.
