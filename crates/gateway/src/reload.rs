//! What a running gateway can take over from a changed configuration.

use crate::config::Config;
use crate::config::meaning::Store;

/// Whether the file says something else of the store. What follows from its
/// disk and the number of peers may change: those that stay keep what they have.
fn is_other_store(old: &Store, new: &Store) -> bool {
    let written = |store: &Store| (!store.is_memory_by_disk).then_some(store.memory_bytes);
    old.disk != new.disk || written(old) != written(new)
}

/// Names everything that would need a restart; a reload that asks for it is
/// refused whole, so that what runs is always one configuration and not two.
pub fn check(old: &Config, new: &Config) -> Result<(), String> {
    let (a, b) = (&old.intercept, &new.intercept);
    let fixed = [
        ("site.key", old.site.key != new.site.key),
        ("tunnel.listen", old.tunnel.listen != new.tunnel.listen),
        (
            "tunnel.keep_alive",
            old.tunnel.keep_alive != new.tunnel.keep_alive,
        ),
        (
            "tunnel.resume_max",
            old.tunnel.resume_max != new.tunnel.resume_max,
        ),
        ("intercept.mode", a.mode != b.mode),
        ("intercept.interfaces", a.interfaces != b.interfaces),
        ("intercept.mark", a.mark != b.mark),
        ("intercept.table", a.table != b.table),
        ("intercept.queue", a.queue != b.queue),
        (
            "intercept.client_address",
            a.client_address != b.client_address,
        ),
        ("[[listen]]", old.listens != new.listens),
        ("[store]", is_other_store(&old.store, &new.store)),
        ("admin.socket", old.admin.socket != new.admin.socket),
        ("admin.metrics", old.admin.metrics != new.admin.metrics),
    ];
    let changed: Vec<_> = fixed
        .iter()
        .filter(|(_, changed)| *changed)
        .map(|(key, _)| *key)
        .collect();
    if changed.is_empty() {
        return Ok(());
    }
    Err(format!(
        "{} cannot change while the gateway runs; restart it, or put the old value back",
        changed.join(", ")
    ))
}
